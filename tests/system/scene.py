"""A world in SQL, its topics, and the processes that work on them, checked against the oracle."""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from itertools import count
from typing import Any, Self

from catalog.models import Beacon
from engine.process.lifecycle import cancel
from tests.servers.proximity import Command, Rig
from tests.system.oracle import Expected, Oracle
from tests.system.topics import Message, Record, TopicSet
from tests.system.traffic import Traffic, detection
from tests.system.world import World

_TICK = 0.02
_DAY = 86_400


class Scene:
    """A world, its topics and processes. `rig.settings` names the stores before `begin`."""

    def __init__(self, rig: Rig, topics: TopicSet, world: World, devices: int = 200) -> None:
        self.rig = rig
        self.topics = topics
        self.world = world
        self.traffic = Traffic(random.Random(1), world, devices)
        self.begun = time.time()
        self._probes = count()

    async def begin(self) -> Self:
        """Write the world to SQL and create the topics."""
        await self.world.save(self.rig.settings["DATABASE_URL"])
        await self.topics.create()
        return self

    def detections(self, count: int) -> list[Message]:
        """Detections of known beacons now."""
        return [self.traffic.detection(int(time.time() * 1000)) for _ in range(count)]

    @asynccontextmanager
    async def load(self, *, rate: int) -> AsyncIterator[None]:
        """Publish `rate` detections a second within the context, a few of them malformed."""
        enough = asyncio.Event()
        task = asyncio.create_task(self._publish(random.Random(2), rate, enough))
        try:
            yield
            enough.set()
            await task
        finally:
            await cancel([task])

    async def _publish(self, dice: random.Random, rate: int, enough: asyncio.Event) -> None:
        begin, sent = time.monotonic(), 0
        async with self.topics.publishing() as send:
            while not enough.is_set():
                due = int((time.monotonic() - begin) * rate)
                for _ in range(due - sent):
                    bad = dice.random() < 0.005
                    stamp = dice.choice((None, int(time.time() * 1000)))
                    await send(self.traffic.malformed() if bad else self.traffic.detection(stamp))
                sent = due
                # The pace of the load, not a wait for something to happen.
                await asyncio.sleep(_TICK)

    async def fired(self) -> dict[str, set[str]]:
        """The names of the campaigns that fired, by device."""
        found: dict[str, set[str]] = {}
        for body in await self.topics.bodies("notifications"):
            found.setdefault(body["device"]["udid"], set()).add(body["campaign"]["name"])
        return found

    async def fires(self, beacon: Beacon) -> set[str]:
        """The names of the campaigns that a detection by a new device fires now."""
        udid = f"probe {next(self._probes)}"
        await self.topics.publish([detection(beacon, udid)])
        await self.topics.until_done()
        return (await self.fired()).get(udid, set())

    async def expected(self, records: list[Record] | None = None) -> Expected:
        """What the oracle makes of the detections that were published, or of these."""
        if records is None:
            records = await self.topics.read("detections")
        return Oracle(self.world, self.traffic.cases, self.begun).walk(records)

    async def assert_published(
        self, *, repeats: bool, records: list[Record] | None = None
    ) -> Expected:
        """Assert that the notifications are the oracle's, and that nothing waits for a commit."""
        if records is None:
            await self.topics.until_done()
        expected = await self.expected(records)
        published = await self.topics.read("notifications")
        assert_equal(expected.notifications, published, repeats=repeats)
        return expected

    async def assert_calls(self, expected: Expected, *, repeats: bool) -> None:
        """Assert that the calls of connectors are the oracle's."""
        calls = await self.topics.read("connector-calls")
        assert_equal(expected.connector_calls, calls, repeats=repeats)

    async def assert_none_missing(self, trigger: Command) -> None:
        """Assert that no beacon became unknown, and that each notification that does not depend on
        claims that Redis lost was published."""
        await self.topics.until_done()
        reasons = (await trigger.metrics()).by("detections", "reason")
        assert "unknown_beacon" not in reasons
        assert reasons["granted"] > 0
        expected = (await self.expected()).notifications
        steady = {each.id for each in self.world.campaigns if each.delay in (0, _DAY)}
        always = {id_ for id_, each in expected.items() if each["campaign"]["id"] in steady}
        assert not always - messages_by_id(await self.topics.read("notifications")).keys()


def messages_by_id(records: list[Record]) -> dict[str, list[dict[str, Any]]]:
    """The bodies of messages by id, repeats included; keys and headers are checked."""
    found: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        body = json.loads(record.value or b"")
        assert record.key == body["device"]["udid"].encode()
        assert dict(record.headers) == {
            "id": body["id"].encode(),
            "campaign": str(body["campaign"]["id"]).encode(),
        }
        found.setdefault(body["id"], []).append(body)
    return found


def assert_equal(
    expected: dict[str, dict[str, Any]], records: list[Record], *, repeats: bool
) -> None:
    """The same ids, and the same fields under each; with `repeats`, each at least once."""
    found = messages_by_id(records)
    missing, surplus = expected.keys() - found.keys(), found.keys() - expected.keys()
    assert not missing, f"{len(missing)} are missing, such as {expected[next(iter(missing))]}"
    assert not surplus, f"{len(surplus)} too many, such as {found[next(iter(surplus))]}"
    for number, bodies in found.items():
        assert repeats or len(bodies) == 1, f"{number} came {len(bodies)} times"
        for body in bodies:
            datetime.strptime(body.pop("triggered_at"), "%Y-%m-%dT%H:%M:%S%z")
            assert body == expected[number]


async def assert_dead_letters(expected: Expected, topics: TopicSet, *, repeats: bool) -> None:
    """Each malformed record once, byte for byte, with its headers; nothing else."""
    found: Counter[tuple[int, int]] = Counter()
    for letter in await topics.read("dead-letters"):
        headers = {name: value.decode() for name, value in letter.headers}
        place = int(headers["partition"]), int(headers["offset"])
        found[place] += 1
        original, reason = expected.dead[place]
        assert (letter.key, letter.value) == (original.key, original.value)
        assert (headers["topic"], headers["reason"]) == (original.topic, reason), headers
        assert headers["detail"]
        assert set(headers) == {"reason", "detail", "topic", "partition", "offset", "failed_at"}
    assert found.keys() == expected.dead.keys()
    assert repeats or set(found.values()) <= {1}
