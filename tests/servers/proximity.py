"""Runs `proximity`, forked from a process that has imported it, because the imports take a second
of a processor. The demo and the lines to paste from the README are started as users do."""

import asyncio
import functools
import json
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from multiprocessing.connection import wait
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from engine.process.settings import PREFIX
from tests.servers.process import free_ports
from tests.servers.waiting import eventually

ROOT = Path(__file__).parents[2]
END_DEADLINE = 200.0
HTTP_SECONDS = 20.0
_FORKING = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload(["tests.servers.imported", __name__])
# Starting a process asks for the status of all the others.
_READING = threading.Lock()


class Command:
    """A process in the project's folder, which leads a session, as from a terminal, where Ctrl-C is
    for the whole group. `port` is its (first) metrics port; `url` is that of an interface."""

    def __init__(
        self, folder: Path, settings: dict[str, str], arguments: Sequence[str], given: bytes
    ) -> None:
        self.port = free_ports()
        self.url = f"http://127.0.0.1:{self.port + 1}"
        metrics = dict.fromkeys(("METRICS_PORT", "API_METRICS_PORT"), str(self.port))
        settings = metrics | {"API_PORT": str(self.port + 1)} | settings
        environment = {"PATH": os.environ["PATH"], "TMPDIR": tempfile.gettempdir(), "TZ": "UTC"}
        environment |= {PREFIX + name: value for name, value in settings.items()}
        self._files = [folder / f"{self.port}.{name}" for name in ("out", "log")]
        for file in self._files:
            file.touch()
        everything = (list(arguments), environment, given, self._files)
        self._process = _FORKING.Process(target=_run, args=everything, daemon=True)
        with _READING:
            self._process.start()
        self.pid: int = self._process.pid or 0

    @property
    def log(self) -> Path:
        """The file of what it writes to standard error."""
        return self._files[1]

    @property
    def stdout(self) -> str:
        """What it has written so far."""
        return self._files[0].read_text(encoding="utf-8", errors="replace")

    @property
    def stderr(self) -> str:
        """The same of errors and of the log."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    @property
    def output(self) -> str:
        """Both."""
        return self.stdout + self.stderr

    @property
    def returncode(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        with _READING:
            return self._process.exitcode

    def wait(self, deadline: float = END_DEADLINE) -> int:
        """Wait for its end. Returns the exit status."""
        wait([self._process.sentinel], deadline)
        status = self.returncode
        if status is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", deadline)
        return status

    async def ended(self, deadline: float = END_DEADLINE) -> int:
        """The same, beside a running loop."""
        return await asyncio.to_thread(self.wait, deadline)

    def send_signal(self, number: signal.Signals) -> None:
        """Nothing happens if it has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    async def stop(self) -> None:
        """Send SIGTERM; the exit status must be 0."""
        self.send_signal(signal.SIGTERM)
        status = await self.ended()
        assert status == 0, f"exit status {status}:\n{self.output}"

    def kill(self) -> None:
        """Send SIGKILL. Safe to call twice."""
        self.send_signal(signal.SIGKILL)
        self.wait()

    def assert_running(self) -> None:
        """Assert that it has not ended by itself."""
        assert self.returncode is None, f"ended by itself:\n{self.output}"

    async def get(self, path: str) -> tuple[int, str]:
        """Status and body of a GET on the metrics port; status 0 when nothing answers."""
        return await asyncio.to_thread(_get, f"http://127.0.0.1:{self.port}{path}")

    async def is_ready(self) -> bool:
        """Whether /readyz answers 200. Raises AssertionError when the process has ended."""
        self.assert_running()
        return (await self.get("/readyz"))[0] == 200

    async def checks(self) -> dict[str, bool]:
        """The checks of /readyz; empty without an answer."""
        _, body = await self.get("/readyz")
        return dict(json.loads(body)["checks"]) if body else {}

    async def reports(self, server: str) -> bool:
        """Whether /readyz says that this server does not answer."""
        return (await self.checks()).get(server) is False

    async def until_ready(self) -> None:
        """Wait until the process is ready."""
        await eventually(self.is_ready, what=f"ready, see {self.log}")

    async def metrics(self) -> "Samples":
        """The present metrics. Raises AssertionError when the process has ended."""

        async def page() -> str:
            self.assert_running()
            status, body = await self.get("/metrics")
            return body if status == 200 else ""

        return Samples(await eventually(page, what="metrics"))

    async def until_decided(self, more: int) -> None:
        """Wait until this trigger has decided so many more detections."""
        before = (await self.metrics()).total("detections")

        async def has_decided() -> bool:
            return (await self.metrics()).total("detections") > before + more

        await eventually(has_decided, what="decisions")


class Samples:
    """Metrics as read at one moment. A counter and a histogram go by their plain names."""

    def __init__(self, text: str) -> None:
        families = text_string_to_metric_families(text)
        self._samples = [sample for family in families for sample in family.samples]

    def by(self, name: str, label: str) -> dict[str, int]:
        """The values that are not zero, summed up by a label; of a histogram, the observations."""
        names = {f"proximity_{name}{end}" for end in ("", "_total", "_count")}
        sums: Counter[str] = Counter()
        for sample in self._samples:
            if sample.name in names and sample.value:
                sums[sample.labels.get(label, "")] += int(sample.value)
        return dict(sums)

    def total(self, name: str) -> int:
        """All of them, summed up."""
        return sum(self.by(name, "").values())


class Rig:
    """Runs commands with the same settings, which go by their names without the prefix."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self.settings = dict(settings)
        self.folder = folder
        self._started: list[Command] = []

    def __call__(self, *arguments: str, given: bytes = b"", **settings: str) -> Command:
        """Run `proximity` with these arguments to its end. Its input comes through a pipe, which
        holds 64 KiB."""
        command = self._start(arguments, settings, given)
        command.wait()
        return command

    def start(self, *arguments: str, **settings: str) -> Command:
        """Start it."""
        return self._start(arguments, settings, b"")

    def role(self, role: str, **settings: str) -> Command:
        """Start a process of one role."""
        return self.start("run", "--role", role, **settings)

    async def ready(self, role: str, **settings: str) -> Command:
        """A process of one role that is ready."""
        command = self.role(role, **settings)
        await command.until_ready()
        return command

    async def verify(self) -> Command:
        """Run `proximity verify` to its end; SQL has to agree with the topics."""
        command = self.start("verify")
        assert await command.ended() == 0, command.output
        return command

    def _start(self, arguments: Sequence[str], settings: dict[str, str], given: bytes) -> Command:
        command = Command(self.folder, self.settings | settings, arguments, given)
        self._started.append(command)
        return command

    def write(self, name: str, content: bytes) -> str:
        """Write a file for a command. Returns its path."""
        (self.folder / name).write_bytes(content)
        return str(self.folder / name)

    def close(self) -> None:
        """Kill all that still run."""
        for command in self._started:
            command.kill()


def _run(
    arguments: list[str], environment: dict[str, str], given: bytes, files: Sequence[Path]
) -> None:
    os.setsid()
    reading, writing = os.pipe()
    os.write(writing, given)
    os.close(writing)
    os.dup2(reading, 0)
    for number, path in enumerate(files, 1):
        with path.open("ab") as stream:
            os.dup2(stream.fileno(), number)
    os.chdir(ROOT)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    # The interpreter's own were opened at its start.
    utf_8 = functools.partial(open, encoding="utf-8", closefd=False)
    sys.stdin = utf_8(0)
    sys.stdout, sys.stderr = utf_8(1, "w"), utf_8(2, "w", 1)
    sys.argv[1:] = arguments
    runpy.run_module("engine.cli", run_name="__main__", alter_sys=True)


def _get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=HTTP_SECONDS) as response:  # noqa: S310
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except (OSError, HTTPException):
        return 0, ""
