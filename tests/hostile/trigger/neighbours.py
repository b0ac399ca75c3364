"""Two companies on the same partitions: one that does its worst, and one that must not feel it."""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from engine.process.cancelling import cancel
from tests.acceptance.rig import Command
from tests.acceptance.topics import PARTITIONS, TopicSet
from tests.acceptance.traffic import Message
from tests.acceptance.world import BeaconPlan, World

TICK = 0.025  # seconds between two detections of the quiet company
QUIET = b"quiet "


class Neighbours:
    """Company A, which is given campaigns by the test, and company B with one."""

    def __init__(self) -> None:
        self.world = World(datetime.now(UTC).replace(microsecond=0))
        self.loud_venue = self.world.venue(self.world.company("A"), "loud")
        self.loud = self.world.beacon(self.loud_venue, 1)
        quiet_venue = self.world.venue(self.world.company("B"), "quiet")
        self.quiet = self.world.beacon(quiet_venue, 2)
        self.world.campaign(quiet_venue, "of B", [self.quiet], delay=3600)
        self._numbers = itertools.count()

    def campaigns(self, count: int, **fields: Any) -> None:
        """So many for A's beacon."""
        for number in range(count):
            self.world.campaign(self.loud_venue, f"A {number}", [self.loud], **fields)

    def spread(self, count: int, **fields: Any) -> list[Message]:
        """One campaign at so many beacons; a detection at each, too far away to fire."""
        plans = [self.world.beacon(self.loud_venue, 100 + n) for n in range(count)]
        self.world.campaign(self.loud_venue, "A everywhere", plans, **fields)
        return [self._message(plan, b"far ", {}, proximity="unknown") for plan in plans]

    def of_loud(self, count: int, **device: Any) -> list[Message]:
        """Detections of A's beacon by phones never heard of before."""
        return [self._message(self.loud, b"loud ", device) for _ in range(count)]

    def of_quiet(self, count: int) -> list[Message]:
        """The same of B's beacon."""
        return [self._message(self.quiet, QUIET, {}) for _ in range(count)]

    @asynccontextmanager
    async def quiet_stream(self, topics: TopicSet) -> AsyncIterator[None]:
        """A detection of B's beacon every TICK seconds, each by a phone of its own."""
        task = asyncio.create_task(self._tick(topics))
        try:
            yield
            assert not task.done(), task
        finally:
            await cancel([task])

    async def _tick(self, topics: TopicSet) -> None:
        async with topics.publishing() as send:
            while True:
                await send(self._message(self.quiet, QUIET, {}))
                # The pace of the load, not a wait for something to happen.
                await asyncio.sleep(TICK)

    def _message(
        self, plan: BeaconPlan, prefix: bytes, device: dict[str, Any], proximity: str = "near"
    ) -> Message:
        udid = f"{prefix.decode()}{next(self._numbers)} {time.time()}"
        uuid, major, minor = plan.triple
        body = {"uuid": uuid, "major": major, "minor": minor, "proximity": proximity}
        value = json.dumps(body | {"device": {"udid": udid, **device}}).encode()
        return Message(0, udid.encode(), value)


async def create_with_broker_time(bootstrap: str, topics: TopicSet) -> None:
    """All topics; the broker stamps notifications when it has them."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics(
            [
                NewTopic(
                    topics.name("notifications"),
                    PARTITIONS,
                    1,
                    topic_configs={"message.timestamp.type": "LogAppendTime"},
                )
            ]
        )
    finally:
        await admin.close()
    await topics.create()


async def quiet_latencies(bootstrap: str, topics: TopicSet) -> list[tuple[float, float]]:
    """When each detection of B was made, and the seconds until its notification was stored."""
    name = topics.name("notifications")
    found: list[tuple[float, float]] = []
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False) as consumer:
        partitions = [TopicPartition(name, number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        ends = await consumer.end_offsets(partitions)
        async with asyncio.timeout(120):
            while any([await consumer.position(tp) < end for tp, end in ends.items()]):
                for batch in (await consumer.getmany(timeout_ms=200)).values():
                    found += [
                        (sent, record.timestamp / 1000 - sent)
                        for record in batch
                        if record.key.startswith(QUIET)
                        and (sent := float(record.key.rpartition(b" ")[2]))
                    ]
    return found


def p99(seconds: Iterable[float]) -> float:
    """At most one of a hundred is above it."""
    ordered = sorted(seconds)
    return ordered[int(0.99 * (len(ordered) - 1))]


class Memory:
    """The memory of a process: what it had, and the most since."""

    def __init__(self, command: Command) -> None:
        self._status = Path(f"/proc/{command.process.pid}/status")
        # What it peaked at while starting is not the question.
        Path(f"/proc/{command.process.pid}/clear_refs").write_text("5")
        self.before = self._read("VmRSS")

    @property
    def peak(self) -> int:
        """The most bytes since the beginning."""
        return self._read("VmHWM")

    @property
    def growth(self) -> int:
        """By how much the peak lies above the beginning."""
        return self.peak - self.before

    def _read(self, name: str) -> int:
        for line in self._status.read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
        raise AssertionError(f"no {name}")
