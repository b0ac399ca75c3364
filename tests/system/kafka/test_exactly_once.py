"""DELIVERY=exactly_once under kills, freezes and rebalances: a consumer that reads committed sees
each notification once, and none is missing.

With PROXIMITY_TEST_FULL=1 many more of each.
"""

import asyncio
import json
import os
import random
import signal

import pytest

from tests.servers.waiting import eventually
from tests.system.kafka.stream import CommittedTopics, detections, ids, open_world
from tests.system.rig import Command, Rig

FULL = "PROXIMITY_TEST_FULL" in os.environ
ROUNDS = 12 if FULL else 2
BURST = 30_000 if FULL else 4000
SETTINGS = {
    "KAFKA_SESSION_TIMEOUT": "2",
    "DRAIN_TIMEOUT": "5",
    "BATCH_RECORDS": "100",
    "DELIVERY": "exactly_once",
}


@pytest.fixture
def committed(kafka_bootstrap: str, topic_prefix: str) -> CommittedTopics:
    return CommittedTopics(kafka_bootstrap, topic_prefix, f"{topic_prefix}g.trigger")


class Pair:
    """Two triggers of one group, with kills, freezes and restarts."""

    def __init__(self, rig: Rig, settings: dict[str, str], dice: random.Random) -> None:
        self._rig = rig
        self._settings = settings
        self._dice = dice
        self.members = [rig.trigger(**settings), rig.trigger(**settings)]

    def victim(self) -> Command:
        return self.members[self._dice.randrange(2)]

    async def kill(self) -> None:
        stopped = self.victim()
        stopped.kill()
        self._replace(stopped)

    async def freeze(self) -> None:
        """Freeze a member past its session timeout, so that its partitions get another owner."""
        frozen = self.victim()
        frozen.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(4)  # the session's length is the test's subject
        frozen.process.send_signal(signal.SIGCONT)

    async def rebalance(self) -> None:
        stopped = self.victim()
        await stopped.stop()
        self._replace(stopped)

    def _replace(self, stopped: Command) -> None:
        self.members[self.members.index(stopped)] = self._rig.trigger(**self._settings)


@pytest.fixture
def dice() -> random.Random:
    return random.Random(int(os.environ.get("PROXIMITY_TEST_SEED", "7")))


@pytest.mark.timeout(1800 if FULL else 240)
async def test_each_notification_is_seen_once(
    rig: Rig, committed: CommittedTopics, redis_url: str, sqlite_url: str, dice: random.Random
) -> None:
    world = open_world(delay=3600)  # claims are taken: a redelivery has to get its own again
    await world.save(sqlite_url)
    await committed.create()
    settings = {**SETTINGS, "REDIS_URL": redis_url, "DATABASE_URL": sqlite_url}
    pair = Pair(rig, settings, dice)
    for each in pair.members:
        await each.until_ready()
    sent = 0
    async with committed.counting("notifications") as count:
        for _ in range(ROUNDS):
            for harm in (pair.kill, pair.freeze, pair.rebalance):
                before = await count()
                await committed.publish(detections(world, sent, BURST))
                sent += BURST
                wanted = before + dice.randint(BURST // 20, BURST // 3)

                async def under_way(wanted: int = wanted) -> bool:
                    return await count() >= wanted

                await eventually(under_way, deadline=90, what="the burst is under way")
                for each in pair.members:
                    await each.until_ready()
                await harm()
    await committed.until_done(deadline=300)
    for each in pair.members:
        await each.until_ready()
        await each.stop()

    seen = ids(await committed.read("notifications"))
    print(f"{sent} detections, {len(seen)} ids, {seen.total()} notifications")
    assert max(seen.values()) == 1
    assert len(seen) == sent
    devices = {
        json.loads(each.value or b"")["device"]["udid"]
        for each in await committed.read("notifications")
    }
    assert len(devices) == sent


async def test_the_embedded_broker_is_refused(rig: Rig, sqlite_url: str) -> None:
    done = rig.start("run", "--embedded", DELIVERY="exactly_once", DATABASE_URL=sqlite_url)
    assert await done.ended() == 1
    assert "PROXIMITY_DELIVERY=exactly_once needs a real Kafka" in done.output
