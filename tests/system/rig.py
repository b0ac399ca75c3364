"""Starts whole processes of the product, watches their metrics ports, stops and kills them."""

import asyncio
import json
import os
import random
import signal
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from engine.process.settings import PREFIX
from tests.servers.process import free_ports
from tests.servers.product_process import ProductProcess
from tests.servers.waiting import eventually

STOP_DEADLINE = 90.0
HTTP_SECONDS = 20.0
# Of processes that are killed and frozen: their partitions soon have another owner.
KILLED = {"KAFKA_SESSION_TIMEOUT": "2", "DRAIN_TIMEOUT": "5"}


class Command:
    """One `proximity` process, its output in a file. `port` is its (first) metrics port."""

    def __init__(self, directory: Path, environment: Mapping[str, str], *arguments: str) -> None:
        self.port = free_ports()
        self.log = directory / f"{arguments[0]}-{self.port}.log"
        settings = {"METRICS_PORT": str(self.port), "METRICS_HOST": "127.0.0.1", **environment}
        self.log.touch()
        self.process = ProductProcess(
            arguments,
            environment=os.environ | {PREFIX + name: value for name, value in settings.items()},
            output=self.log,
        )

    @property
    def output(self) -> str:
        """The output of the process."""
        return self.log.read_text(errors="replace")

    def assert_running(self) -> None:
        """Assert that it has not ended by itself."""
        assert self.process.poll() is None, f"ended by itself:\n{self.output}"

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

    async def ended(self, deadline: float = STOP_DEADLINE) -> int:
        """Wait for the end. Returns the exit status."""
        return await asyncio.to_thread(self.process.wait, deadline)

    async def stop(self) -> None:
        """Send SIGTERM; the exit status must be 0."""
        self.process.send_signal(signal.SIGTERM)
        status = await self.ended()
        assert status == 0, f"exit status {status}:\n{self.output}"

    def kill(self) -> None:
        """Send SIGKILL. Safe to call twice."""
        self.process.kill()
        self.process.wait(STOP_DEADLINE)


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
    """Starts commands that share servers, topics and prefixes, and kills those that still run."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)
        self._directory = directory
        self._started: list[Command] = []

    def start(self, *arguments: str, **settings: str) -> Command:
        """Start `proximity` with these arguments; `settings` by name, without the prefix."""
        environment = {**self.environment, **settings}
        command = Command(self._directory, environment, *arguments)
        self._started.append(command)
        return command

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

    def close(self) -> None:
        """Kill all running processes."""
        for command in self._started:
            command.kill()


class Crew:
    """Processes of one role, of which one at a time is killed, frozen or restarted."""

    def __init__(
        self, rig: Rig, role: str, size: int, dice: random.Random, **settings: str
    ) -> None:
        self._start = lambda: rig.role(role, **KILLED | settings)
        self._dice = dice
        self.members = [self._start() for _ in range(size)]

    def __iter__(self) -> Iterator[Command]:
        return iter(self.members)

    def assert_running(self) -> None:
        """Assert that no member has ended by itself."""
        for member in self.members:
            member.assert_running()

    async def until_ready(self) -> None:
        """Wait until every member is ready."""
        for member in self.members:
            await member.until_ready()

    async def harm(self, *kinds: str) -> None:
        """Do one of `kinds`, which may be there twice, to a member: kill, restart, freeze."""
        kind = self._dice.choice(kinds)
        victim = self.members.pop(self._dice.randrange(len(self.members)))
        if kind == "freeze":
            await victim.until_ready()
            await self._freeze(victim)
            self.members.append(victim)
            return
        if kind == "kill":
            victim.kill()
        else:
            await victim.until_ready()
            await victim.stop()
        self.members.append(self._start())

    async def _freeze(self, victim: Command) -> None:
        """Past its session, so that the others own its partitions."""
        await self.until_ready()
        before = self._assignments()
        victim.process.send_signal(signal.SIGSTOP)
        try:
            await eventually(lambda: self._assignments() > before, what="a rebalance")
        finally:
            victim.process.send_signal(signal.SIGCONT)

    def _assignments(self) -> int:
        return sum(member.output.count('"partitions assigned"') for member in self.members)

    async def stop(self) -> None:
        """Stop all members, in good order."""
        await self.until_ready()
        for member in self.members:
            await member.stop()


def environment_on(bootstrap: str, prefix: str) -> dict[str, str]:
    """The settings of processes on this Kafka, with topics, groups and keys of their own."""
    return {
        "KAFKA_BOOTSTRAP_SERVERS": bootstrap,
        "TOPIC_PREFIX": prefix,
        "GROUP_PREFIX": f"{prefix}g.",
        "REDIS_PREFIX": prefix,
        "KAFKA_SESSION_TIMEOUT": "15",  # a machine that stands still makes no rebalance
        "LOG_FORMAT": "json",
    }


def _get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=HTTP_SECONDS) as response:  # noqa: S310
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except (OSError, HTTPException):
        return 0, ""
