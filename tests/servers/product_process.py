"""Starts processes of the product: forked from one that has imported it (a second of each start).

With PROXIMITY_TEST_FULL=1 each is a start of its own, imports included, as its users have it.
"""

import contextlib
import functools
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from multiprocessing import reduction
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, TypeAlias

FULL = "PROXIMITY_TEST_FULL" in os.environ
ROOT = Path(__file__).parents[2]
_FORKING = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload(["tests.servers.imported"])
# Starting a process asks for the status of all the others.
_READING = threading.Lock()
# Only a new interpreter reads these.
_OF_A_START = {"LD_PRELOAD", "PYTHONPATH", "PYTHONWARNINGS"}


class ForkedProcess:
    """A process of the product, used as subprocess.Popen is."""

    def __init__(self, *arguments: Any) -> None:
        self._process = _FORKING.Process(target=_run_product, args=arguments, daemon=True)
        with _READING:
            self._process.start()
        self.pid: int = self._process.pid or 0

    def poll(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        with _READING:
            return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises subprocess.TimeoutExpired."""
        wait([self._process.sentinel], timeout)
        status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return status

    def send_signal(self, number: signal.Signals) -> None:
        """Nothing happens if it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


class _Stream:
    """A file that the forked process gets too."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> Any:
        return _received, (reduction.DupFd(self.number),)


def _received(duplicate: Any) -> _Stream:
    return _Stream(duplicate.detach())


def _run_product(
    arguments: Sequence[str], environment: Mapping[str, str], directory: str, *streams: _Stream
) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream.number, number)
    os.setsid()
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    # The interpreter's own were opened at its start.
    utf_8 = functools.partial(open, encoding="utf-8", closefd=False)
    sys.stdin = utf_8(0)
    sys.stdout, sys.stderr = utf_8(1, "w"), utf_8(2, "w", 1)
    sys.argv[1:] = arguments
    runpy.run_module("engine.cli", run_name="__main__", alter_sys=True)


ProductProcess: TypeAlias = "ForkedProcess | subprocess.Popen[bytes]"


def start_product(
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str],
    streams: tuple[int, int, int],
    directory: Path | None = None,
) -> ProductProcess:
    """Start `proximity` with these arguments, this whole environment and these streams, in a
    session of its own, as from a terminal, where Ctrl-C is for the whole group.
    """
    folder = directory or Path.cwd()
    if not FULL and not _OF_A_START.intersection(environment):
        forked = map(_Stream, streams)
        return ForkedProcess(list(arguments), dict(environment), str(folder), *forked)
    stdin, stdout, stderr = streams
    return subprocess.Popen(
        [sys.executable, "-m", "engine.cli", *arguments],
        cwd=folder,
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
    reading, writing = os.pipe()
    feeder = threading.Thread(target=_feed, args=(writing, given))
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = start_product(
            arguments,
            environment=environment,
            directory=ROOT,
            streams=(reading, output.fileno(), errors.fileno()),
        )
        os.close(reading)
        feeder.start()
        try:
            status = process.wait(deadline)
        finally:
            process.kill()
            feeder.join()
        output.seek(0)
        errors.seek(0)
        texts = (output.read().decode(), errors.read().decode())
    return subprocess.CompletedProcess(arguments, status, *texts)


def _feed(writing: int, given: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), open(writing, "wb", buffering=0) as pipe:
        pipe.write(given)
