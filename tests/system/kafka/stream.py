"""A stream in which each detection leads to one notification, without claims."""

import json
import time
from collections import Counter
from datetime import UTC, datetime

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
    body = {"uuid": uuid, "major": major, "minor": minor, "proximity": "near"}
    body["detected_at"] = int(time.time() * 1000)
    return [
        Message(n, b"phone-%d" % n, json.dumps(body | {"device": {"udid": f"phone-{n}"}}).encode())
        for n in range(begin, begin + count)
    ]


class CommittedTopics(TopicSet):
    """The topics as read with read_committed."""

    isolation = "read_committed"

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
