"""A stream in which each detection leads to one notification, without claims."""

import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from aiokafka import AIOKafkaConsumer

from tests.servers.waiting import eventually
from tests.system.topics import DEADLINE, Record, TopicSet
from tests.system.traffic import Message
from tests.system.world import World


def open_world(**campaign: object) -> World:
    """One beacon with one campaign, which has no delay unless `campaign` sets one."""
    world = World(datetime.now(UTC))
    venue = world.venue(world.company("one", connector=True), "only")
    beacon = world.beacon(venue, 1)
    world.campaign(venue, "always", [beacon], **({"delay": 0} | campaign))
    return world


def detections(world: World, begin: int, count: int) -> list[Message]:
    """Detections of different devices, so that all partitions get some."""
    uuid, major, minor = world.beacons[0].triple
    stamp = int(time.time() * 1000)
    return [
        Message(
            number,
            b"phone-%d" % number,
            json.dumps(
                {
                    "uuid": uuid,
                    "major": major,
                    "minor": minor,
                    "proximity": "near",
                    "device": {"udid": f"phone-{number}"},
                    "detected_at": stamp,
                }
            ).encode(),
        )
        for number in range(begin, begin + count)
    ]


class CommittedTopics(TopicSet):
    """The topics as read with read_committed."""

    @asynccontextmanager
    async def _reader(self, group: str | None = None) -> AsyncIterator[AIOKafkaConsumer]:
        async with AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=group,
            enable_auto_commit=False,
            isolation_level="read_committed",
        ) as consumer:
            yield consumer

    async def until_done(self, deadline: float = DEADLINE) -> None:
        """Wait until every record that can be seen is committed; the ends of transactions, and
        what was given up, take offsets too. Nothing is published any more.
        """
        ends: Counter[int] = Counter()
        for record in await self.read(self._source):
            ends[record.partition] = max(ends[record.partition], record.offset + 1)

        async def done() -> bool:
            committed = await self.committed()
            return all(committed[partition] >= end for partition, end in ends.items())

        await eventually(done, deadline=deadline, what="all is committed")


def ids(records: list[Record]) -> Counter[bytes]:
    """The number of records of each notification."""
    return Counter(dict(record.headers)["id"] for record in records)


async def repeats_by_partition(topics: TopicSet) -> Counter[int]:
    """Notifications beyond the first of their id. A device is on one partition everywhere."""
    seen: set[bytes] = set()
    repeats: Counter[int] = Counter()
    for record in await topics.read("notifications"):
        number = dict(record.headers)["id"]
        if number in seen:
            repeats[record.partition] += 1
        seen.add(number)
    return repeats
