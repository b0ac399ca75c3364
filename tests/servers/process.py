"""What the three kinds of server processes share: one address and one directory for life."""

import abc
import contextlib
import itertools
import os
import random
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Self, TypeVar

from engine.cli.local_servers import ChildProcess, ServerStartError
from tests.servers.missing import ServerMissingError
from tests.servers.waiting import wait_until

_ATTEMPTS = 3
S = TypeVar("S", bound="ServerProcess")


class ServerProcess(abc.ABC):
    """A server that a test may stop, kill and start again: same address, data kept.

    The calls block (Redis milliseconds, PostgreSQL tenths, Kafka seconds): an async test that must
    keep its loop turning calls them through `asyncio.to_thread`.
    """

    start_deadline = 90.0
    stop_deadline = 60.0
    user: str | None = None

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.port = port
        self._child: ChildProcess | None = None

    @abc.abstractmethod
    def command(self) -> Sequence[str | Path]:
        """The server's command line; it must stay in the foreground."""

    @abc.abstractmethod
    def answers(self) -> bool:
        """Whether the server does its work now (one short try)."""

    def prepare(self) -> None:  # noqa: B027 - most servers need nothing
        """Make the data directory, before the first start."""

    def start(self) -> Self:
        """Unless it runs, start it and wait until it answers. Raises ServerStartError with the end
        of its log."""
        if self._child is not None and self._child.running:
            return self
        as_user = {"user": self.user, "group": self.user, "extra_groups": []} if self.user else {}
        child = ChildProcess(
            self.command(), log=self.directory / "server.log", cwd=self.directory, **as_user
        )
        self._child = child
        with contextlib.suppress(TimeoutError):
            wait_until(
                lambda: not child.running or self.answers(),
                deadline=self.start_deadline,
                what="the server answers",
            )
            if child.running:
                return self
        self.kill()
        raise ServerStartError(f"{type(self).__name__} did not start:\n{child.log_tail()}")

    def stop(self) -> None:
        """Stop it in good order and wait for its end."""
        if self._child is not None:
            self._child.stop(deadline=self.stop_deadline)

    def kill(self) -> None:
        """SIGKILL it and wait for its end."""
        if self._child is not None:
            self._child.kill()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """It hangs: its connections stay open, new ones are taken, nothing is answered."""
        assert self._child is not None
        pid = self._child.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        stopped = [pid, *map(int, children)]
        try:
            _signal(stopped, signal.SIGSTOP)
            wait_until(lambda: all(map(_is_stopped, stopped)), what="no thread runs")
            yield
        finally:
            _signal(stopped, signal.SIGCONT)


def _signal(processes: Sequence[int], number: signal.Signals) -> None:
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):  # a child may end by itself
            os.kill(pid, number)


def _is_stopped(pid: int) -> bool:
    """The signal is sent before the last thread on another processor has seen it."""
    states = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(state.rpartition(")")[2].split()[0] == "T" for state in states)


@contextlib.contextmanager
def started(make: Callable[[Path, int], S]) -> Iterator[S]:
    """A fresh server, running, in a directory that goes with it.

    Tried thrice, because a free port can be taken before the server opens it.
    """
    with tempfile.TemporaryDirectory(prefix="proximity-test-", ignore_cleanup_errors=True) as base:
        # A server that runs as another user has to reach its directory.
        Path(base).chmod(0o755)
        for attempt in range(1, _ATTEMPTS + 1):
            directory = Path(base) / str(attempt)
            directory.mkdir()
            server = make(directory, free_ports())
            server.prepare()
            try:
                server.start()
                break
            except ServerStartError:
                if attempt == _ATTEMPTS:
                    raise
        try:
            yield server
        finally:
            server.kill()


def free_ports() -> int:
    """The first of two free ports in a row.

    Whoever gets them opens them later: until then nobody else in this run is given them. They lie
    below those that the system gives to connections, which could take the port of a server that a
    test has stopped, and even connect a client that tries it to itself.
    """
    for first in _ports:
        with socket.socket() as one, socket.socket() as two, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", first))
            two.bind(("127.0.0.1", first + 1))
            return first
    raise AssertionError("unreachable")


def _own_ports() -> Iterator[int]:
    """Every other port of those that are this test worker's. Another run begins elsewhere."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    lowest = 10_000 + worker % 5 * 2000
    begin = random.randrange(0, 2000, 2)
    return itertools.cycle(
        [*range(lowest + begin, lowest + 2000, 2), *range(lowest, lowest + begin, 2)]
    )


_ports = _own_ports()


def find_program(*names: str, beside: Sequence[Path] = (), package: str) -> Path:
    """The first of the programs found on PATH, else in the directories `beside`.

    Raises ServerMissingError, naming the Debian package that brings it.
    """
    for name in names:
        for place in (None, *map(str, beside)):
            if found := shutil.which(name, path=place):
                return Path(found)
    raise ServerMissingError(f"{' or '.join(names)} not found; Debian: apt install {package}")
