"""Each detection leads to one notification, while triggers are killed, frozen and restarted. With
exactly_once a consumer that reads committed sees each once; else what was in flight may repeat.

With PROXIMITY_TEST_FULL=1 many more of each.
"""

import os
import random
from collections import Counter

import pytest

from tests.system.rig import Crew, Rig
from tests.system.topics import PARTITIONS, Message, TopicSet
from tests.system.traffic import detection
from tests.system.world import World

FULL = "PROXIMITY_TEST_FULL" in os.environ
ROUNDS = 12 if FULL else 2
EXACT_BURST, BURST = (30_000, 60_000) if FULL else (4000, 12_000)
BATCH = 100
# A partition is paused at two batches, and one fetch brings another one at most.
IN_FLIGHT = 3 * BATCH


async def start(rig: Rig, topics: TopicSet, delay: int) -> World:
    """One beacon with one campaign."""
    world = World()
    beacon = world.beacon(world.venue(world.company("one"), "only"), 1)
    world.campaign(beacon.venue, "always", [beacon], delay=delay)
    await world.save(rig.environment["DATABASE_URL"])
    await topics.create()
    rig.environment["BATCH_RECORDS"] = str(BATCH)
    return world


def detections(world: World, begin: int, count: int) -> list[Message]:
    """Detections of different devices, so that all partitions get some."""
    return [detection(world.beacons[0], f"phone-{n}") for n in range(begin, begin + count)]


@pytest.mark.timeout(2400)
async def test_exactly_once(stores: Rig, committed: TopicSet) -> None:
    dice = random.Random(int(os.environ.get("PROXIMITY_TEST_SEED", "7")))
    # Claims are taken: a redelivery has to get its own again.
    world, sent = await start(stores, committed, delay=3600), 0
    pair = Crew(stores, "trigger", 2, dice, DELIVERY="exactly_once")
    for harm in ("kill", "freeze", "restart") * ROUNDS:
        await pair.until_ready()
        wanted = await committed.count("notifications") + EXACT_BURST // dice.randint(3, 20)
        await committed.publish(detections(world, sent, EXACT_BURST))
        sent += EXACT_BURST
        await committed.until("notifications", wanted, pair.assert_running)
        await pair.harm(harm)
    await committed.until_done()
    await pair.stop()
    published = await committed.read("notifications")
    seen = Counter(dict(record.headers)["id"] for record in published)
    assert max(seen.values()) == 1
    assert len(seen) == len({each.key for each in published}) == sent


@pytest.mark.timeout(2400)
async def test_a_kill_repeats_at_most_what_was_in_flight(stores: Rig, topics: TopicSet) -> None:
    dice, kills, repeats = random.Random(3), 0, Counter[int]()
    world = await start(stores, topics, delay=0)
    trigger = Crew(stores, "trigger", 1, dice)
    await trigger.until_ready()
    # A kill that hits nothing proves nothing: a few more, then.
    while kills < ROUNDS or (not repeats and kills < 4 * ROUNDS):
        wanted = await topics.count("notifications") + dice.randint(BURST // 10, BURST // 2)
        await topics.publish(detections(world, kills * BURST, BURST))
        await topics.until("notifications", wanted, trigger.assert_running)
        await trigger.harm("kill")
        kills += 1
        await topics.until_done()
        sent = await topics.read("notifications")
        # (A device is on one partition everywhere.)
        partitions = {dict(each.headers)["id"]: each.partition for each in sent}
        repeats = Counter(each.partition for each in sent) - Counter(partitions.values())
    await trigger.stop()
    assert len(partitions) == kills * BURST
    assert repeats.total() > 0
    assert max(repeats.values()) <= kills * IN_FLIGHT
    assert repeats.total() <= PARTITIONS * kills * IN_FLIGHT


async def test_the_embedded_broker_cannot_do_exactly_once(rig: Rig, sqlite_url: str) -> None:
    done = rig.start("run", "--embedded", DELIVERY="exactly_once", DATABASE_URL=sqlite_url)
    assert await done.ended() == 1
    assert "PROXIMITY_DELIVERY=exactly_once needs a real Kafka" in done.output
