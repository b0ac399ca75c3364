"""Starts processes of the product: forked from one that has it imported, see fork_server.py.

With PROXIMITY_TEST_FULL=1 each is a start of its own, imports included, as its users have it.
"""

import atexit
import contextlib
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from tests.servers.fork_server import STATUS

FULL = "PROXIMITY_TEST_FULL" in os.environ
ROOT = Path(__file__).parents[2]
_START_SECONDS = 60.0
# Only a new interpreter reads these.
_OF_A_START = {"LD_PRELOAD", "PYTHONPATH", "PYTHONWARNINGS"}


class ForkedProcess:
    """A process of the product that is not this process's child; used as subprocess.Popen is."""

    def __init__(self, status: int) -> None:
        """`status` is the file from which its pid is read, and its status once it has ended."""
        self.returncode: int | None = None
        self._status = status
        self._reading = threading.Lock()
        self.pid = self._next(_START_SECONDS)

    def poll(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        with self._reading, contextlib.suppress(TimeoutError):
            if self.returncode is None:
                self.returncode = os.waitstatus_to_exitcode(self._next(0))
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises subprocess.TimeoutExpired."""
        self._may_read(timeout)
        status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return status

    def send_signal(self, number: signal.Signals) -> None:
        """Nothing happens if it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _may_read(self, timeout: float | None) -> bool:
        poll = select.poll()
        poll.register(self._status, select.POLLIN)
        return bool(poll.poll(None if timeout is None else timeout * 1000))

    def _next(self, timeout: float) -> int:
        if not self._may_read(timeout):
            raise TimeoutError(f"no status within {timeout} s")
        written = os.read(self._status, STATUS.size)
        assert written, "the fork server has ended"
        number: int = STATUS.unpack(written)[0]
        return number

    def __del__(self) -> None:
        os.close(self._status)


ProductProcess: TypeAlias = "ForkedProcess | subprocess.Popen[bytes]"


def start_product(
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str],
    streams: tuple[int, int, int],
    directory: Path | None = None,
    sources: Path | None = None,
) -> ProductProcess:
    """Start `proximity` with these arguments, this whole environment and these streams, in a
    session of its own, as from a terminal, where Ctrl-C is for the whole group.

    `sources`: a folder with the product's, where they are not these.
    """
    if sources is None and not FULL and not _OF_A_START.intersection(environment):
        return _fork_server().start(arguments, environment, directory or Path.cwd(), streams)
    stdin, stdout, stderr = streams
    return subprocess.Popen(
        [sys.executable, "-m", "engine.cli", *arguments],
        # Modules of the folder that it starts in are found before those installed.
        cwd=sources or directory,
        env=dict(environment),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
    )


def run_product(
    arguments: Sequence[str], *, environment: Mapping[str, str], given: bytes, deadline: float
) -> "subprocess.CompletedProcess[str]":
    """Run `proximity` to its end in the project's folder."""
    with (
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as errors,
        _feeding(given) as stdin,
    ):
        process = start_product(
            arguments,
            environment=environment,
            directory=ROOT,
            streams=(stdin, output.fileno(), errors.fileno()),
        )
        try:
            status = process.wait(deadline)
        finally:
            process.kill()
        output.seek(0)
        errors.seek(0)
        texts = (output.read().decode(), errors.read().decode())
    return subprocess.CompletedProcess(arguments, status, *texts)


@contextlib.contextmanager
def _feeding(given: bytes) -> Iterator[int]:
    """A pipe that this is written to, however much it is."""
    reading, writing = os.pipe()
    feeder = threading.Thread(target=_feed, args=(writing, given))
    feeder.start()
    try:
        yield reading
    finally:
        os.close(reading)
        feeder.join()


def _feed(writing: int, given: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), os.fdopen(writing, "wb", buffering=0) as pipe:
        pipe.write(given)


class _ForkServer:
    """One for all tests of this process; it ends with it."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.servers.fork_server", str(theirs.fileno())],
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        atexit.register(self._close)

    def start(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        directory: Path,
        streams: tuple[int, int, int],
    ) -> ForkedProcess:
        request = {
            "arguments": list(arguments),
            "environment": dict(environment),
            "directory": str(directory),
        }
        reading, writing = os.pipe()
        try:
            socket.send_fds(self._socket, [json.dumps(request).encode()], [*streams, writing])
        finally:
            os.close(writing)
        return ForkedProcess(reading)

    def _close(self) -> None:
        self._socket.close()
        self._process.wait(_START_SECONDS)


@functools.cache
def _fork_server() -> _ForkServer:
    return _ForkServer()
