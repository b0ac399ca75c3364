"""Runs the tests that are marked `alone` while no other worker runs a test.

They assert latencies in milliseconds, which other tests on the same processors would lengthen.

There are two locks. A test holds `_RUNNING`, shared with others; a test alone holds it for itself.
Each test begins at `_GATE`. A test alone holds the gate from the moment at which it waits for the
others to end, so that no other test begins meanwhile.
"""

import fcntl
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

# Files that exist anyway: locks on them leave nothing behind.
_GATE = os.open(__file__, os.O_RDONLY)
_RUNNING = os.open(Path(__file__).with_name("__init__.py"), os.O_RDONLY)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "alone: no other worker runs a test meanwhile")


# Outside of pytest-timeout's wrapper: the time limit of a test does not include its wait.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    with _alone() if item.get_closest_marker("alone") else _beside_others():
        return (yield)


@contextmanager
def _alone() -> Iterator[None]:
    with _held(_GATE, fcntl.LOCK_EX), _held(_RUNNING, fcntl.LOCK_EX):
        yield


@contextmanager
def _beside_others() -> Iterator[None]:
    with _held(_GATE, fcntl.LOCK_EX):
        fcntl.flock(_RUNNING, fcntl.LOCK_SH)
    try:
        yield
    finally:
        fcntl.flock(_RUNNING, fcntl.LOCK_UN)


@contextmanager
def _held(file: int, how: int) -> Iterator[None]:
    fcntl.flock(file, how)
    try:
        yield
    finally:
        # Said, because a forked child would keep the lock with its copy of the file.
        fcntl.flock(file, fcntl.LOCK_UN)
