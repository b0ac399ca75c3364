"""The fixtures of all tests: see tests/servers/fixtures.py."""

import gc
import logging
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

# Modules and their rewritten assertions stay: the search for garbage among them took a fifth of
# the collection, and then a part of each test.
gc.disable()
# Of trio, which selenium brings and nothing here uses.
os.environ["HYPOTHESIS_NO_PLUGINS"] = "1"

pytest_plugins = [
    "tests.servers.handles",
    "tests.servers.fixtures",
    "tests.servers.scheduling",
    "tests.servers.alone",
]
if "mutmut" in sys.modules:
    pytest_plugins.append("tests.mutation")


def pytest_sessionstart() -> None:
    """A shell's script that runs this in the background has it ignore Ctrl-C, and every process
    that a test starts in order to interrupt it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _logs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a command that runs in this process makes of the logs ends with the test, as its streams
    do; so no logger may remember it."""
    configure = structlog.configure

    def forgettable(**options: Any) -> None:
        configure(**options | {"cache_logger_on_first_use": False})

    monkeypatch.setattr(structlog, "configure", forgettable)
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    for handler in root.handlers[:]:
        if handler not in before and type(handler) is logging.StreamHandler:
            root.removeHandler(handler)
    root.setLevel(level)
    structlog.reset_defaults()
