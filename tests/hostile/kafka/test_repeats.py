"""A SIGKILL in a stream that grants everything repeats what was in flight, at most."""

import asyncio
import os
import random

import pytest

from tests.acceptance.rig import Rig
from tests.acceptance.topics import PARTITIONS, TopicSet
from tests.hostile.kafka.stream import detections, ids, open_world, repeats_by_partition

FULL = "PROXIMITY_TEST_FULL" in os.environ
KILLS = 10 if FULL else 3
BURST = 60_000 if FULL else 12_000
BATCH = 100
# A partition is paused at two batches, and one fetch brings another one at most.
IN_FLIGHT = 3 * BATCH
SETTINGS = {"KAFKA_SESSION_TIMEOUT": "2", "DRAIN_TIMEOUT": "5", "BATCH_RECORDS": str(BATCH)}


@pytest.mark.timeout(900 if FULL else 240)
async def test_a_kill_repeats_at_most_what_was_in_flight(
    rig: Rig, topics: TopicSet, redis_url: str, sqlite_url: str
) -> None:
    world = open_world()
    await world.save(sqlite_url)
    await topics.create()
    settings = {**SETTINGS, "REDIS_URL": redis_url, "DATABASE_URL": sqlite_url}
    dice = random.Random(3)
    trigger = rig.trigger(**settings)
    await trigger.until_ready()
    async with topics.counting("notifications") as count:
        for kill in range(KILLS):
            before = await count()
            await topics.publish(detections(world, kill * BURST, BURST))
            async with asyncio.timeout(120):
                while await count() < before + dice.randint(BURST // 10, BURST // 2):
                    assert trigger.process.poll() is None, trigger.output
            trigger.kill()
            trigger = rig.trigger(**settings)
            await topics.until_done()
    await trigger.until_ready()
    await trigger.stop()

    published = ids(await topics.read("notifications"))
    assert len(published) == KILLS * BURST
    repeats = await repeats_by_partition(topics)
    print(
        f"{KILLS} kills, {KILLS * BURST} notifications: {repeats.total()} came again, "
        f"at most {max(repeats.values(), default=0)} of a partition"
    )
    assert repeats.total() > 0  # a kill that hits nothing proves nothing
    assert max(repeats.values()) <= KILLS * IN_FLIGHT
    assert repeats.total() <= PARTITIONS * KILLS * IN_FLIGHT
