"""What every test may ask for: see tests/servers/fixtures.py."""

import logging
from collections.abc import Iterator

import pytest

pytest_plugins = ["tests.servers.handles", "tests.servers.fixtures"]


@pytest.fixture(autouse=True)
def _root_logger() -> Iterator[None]:
    """What a command that runs in this process sets up ends with the test, as its stream does."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    for handler in root.handlers[:]:
        if handler not in before and type(handler) is logging.StreamHandler:
            root.removeHandler(handler)
    root.setLevel(level)
