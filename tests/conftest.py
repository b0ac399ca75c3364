"""What all tests share; most fixtures are in tests/servers/fixtures.py."""

import gc
import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import structlog

from engine.process.metrics import Metrics

# Modules and their rewritten assertions stay: the search for garbage among them took a fifth of
# the collection, and then a part of each test.
gc.disable()
# Servers and databases write thousands of small files: a third of the time in memory. (pytest has
# asked for the folder before, and subprocesses ask again.)
_MEMORY = Path("/dev/shm")
if "TMPDIR" not in os.environ and _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 8 << 30:
    os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)
# Of trio, which selenium brings and nothing here uses.
os.environ["HYPOTHESIS_NO_PLUGINS"] = "1"

# One profile for all properties: no deadline (two busy cores), reproducible in CI.
hypothesis.settings.register_profile(
    "here",
    deadline=None,
    max_examples=100,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile(
    "ci", hypothesis.settings.get_profile("here"), derandomize=True
)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "here")

pytest_plugins = ["tests.servers.fixtures"]


def pytest_sessionstart() -> None:
    """A shell's script that runs this in the background has it ignore Ctrl-C, and every process
    that a test starts in order to interrupt it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture(autouse=True)
def _logs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a command that runs in this process makes of the logs ends with the test, as its streams
    do; so no logger may remember it."""
    configure = structlog.configure
    # By default a traceback shows all variables, which takes ten seconds.
    plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    configure(processors=[*structlog.get_config()["processors"][:-1], plain])

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
