"""Starts processes of the product: forked from one that has imported it, because the imports take a
second of a processor. The tests of the demo and of the walks start it as its users do."""

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
from multiprocessing.connection import wait
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FORKING = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload(["tests.servers.imported"])
# Starting a process asks for the status of all the others.
_READING = threading.Lock()


class ProductProcess:
    """`proximity` with these arguments and this whole environment, used as subprocess.Popen is.

    Its output goes to files; `given` comes through a pipe, which holds 64 KiB. It leads a session,
    as from a terminal, where Ctrl-C is for the whole group.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        output: Path,
        errors: Path | None = None,
        given: bytes = b"",
        directory: Path | None = None,
    ) -> None:
        streams = (output, errors or output)
        folder = directory or Path.cwd()
        everything = (list(arguments), dict(environment), folder, given, streams)
        self._process = _FORKING.Process(target=_run_product, args=everything, daemon=True)
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


def _run_product(
    arguments: list[str],
    environment: dict[str, str],
    directory: Path,
    given: bytes,
    streams: tuple[Path, Path],
) -> None:
    os.setsid()
    reading, writing = os.pipe()
    os.write(writing, given)
    os.close(writing)
    os.dup2(reading, 0)
    for number, path in enumerate(streams, 1):
        with path.open("ab") as stream:
            os.dup2(stream.fileno(), number)
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


def run_product(
    arguments: Sequence[str], *, environment: Mapping[str, str], given: bytes, deadline: float
) -> "subprocess.CompletedProcess[str]":
    """Run `proximity` to its end in the project's folder."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("output", "errors")]
        process = ProductProcess(
            arguments,
            environment=environment,
            directory=ROOT,
            given=given,
            output=files[0],
            errors=files[1],
        )
        try:
            status = process.wait(deadline)
        finally:
            process.kill()
        output, errors = (path.read_text(encoding="utf-8") for path in files)
    return subprocess.CompletedProcess(arguments, status, output, errors)
