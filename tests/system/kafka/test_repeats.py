"""After a SIGKILL in a stream that grants everything, at most the records in flight repeat."""

import asyncio
import os
import random
from collections import Counter

import pytest

from tests.system.kafka.stream import detections, ids, open_world
from tests.system.rig import Rig
from tests.system.topics import PARTITIONS, TopicSet

FULL = "PROXIMITY_TEST_FULL" in os.environ
KILLS = 10 if FULL else 2
BURST = 60_000 if FULL else 12_000
BATCH = 100
# A partition is paused at two batches, and one fetch brings another one at most.
IN_FLIGHT = 3 * BATCH
SETTINGS = {"KAFKA_SESSION_TIMEOUT": "2", "DRAIN_TIMEOUT": "5", "BATCH_RECORDS": str(BATCH)}


@pytest.mark.timeout(2400)
async def test_a_kill_repeats_at_most_what_was_in_flight(stores: Rig, topics: TopicSet) -> None:
    world, dice = open_world(), random.Random(3)
    await world.save(stores.environment["DATABASE_URL"])
    await topics.create()
    trigger = stores.trigger(**SETTINGS)
    await trigger.until_ready()
    kills = 0
    repeats: Counter[int] = Counter()
    async with topics.counting("notifications") as count:
        # A kill that hits nothing proves nothing: a few more, then.
        while kills < KILLS or (not repeats and kills < 4 * KILLS):
            before = await count()
            await topics.publish(detections(world, kills * BURST, BURST))
            async with asyncio.timeout(120):
                while await count() < before + dice.randint(BURST // 10, BURST // 2):
                    assert trigger.process.poll() is None, trigger.output
            trigger.kill()
            kills += 1
            trigger = stores.trigger(**SETTINGS)
            await topics.until_done()
            # (A device is on one partition everywhere.)
            sent = await topics.read("notifications")
            repeats = Counter(each.partition for each in sent)
            repeats -= Counter({dict(each.headers)["id"]: each.partition for each in sent}.values())
    await trigger.until_ready()
    await trigger.stop()
    assert len(ids(await topics.read("notifications"))) == kills * BURST
    assert repeats.total() > 0
    assert max(repeats.values()) <= kills * IN_FLIGHT
    assert repeats.total() <= PARTITIONS * kills * IN_FLIGHT
