"""Two triggers of a group are killed at random under load: no notification is lost or added. With
exactly_once a consumer that reads committed sees each once; with PROXIMITY_TEST_FULL=1 many more.
"""

import os
import random
from collections import Counter

import pytest

from tests.servers.proximity import Rig
from tests.system.crew import Crew
from tests.system.scene import Scene, assert_dead_letters
from tests.system.topics import PARTITIONS, TopicSet
from tests.system.traffic import detection
from tests.system.world import World, small_world

ROUNDS = 3
BATCH = 100
# A partition is paused at two batches, and one fetch brings another one at most.
IN_FLIGHT = 3 * BATCH * PARTITIONS
BURST = 2500  # so much at once that a kill mostly comes in the middle of a batch
FULL = "PROXIMITY_TEST_FULL" in os.environ
EXACT_ROUNDS, EXACT_BURST = (12, 30_000) if FULL else (2, 4000)
CAPS = [{"max": 2, "per": "PT1M"}, {"max": 3, "per": "PT90S"}, {"max": 20, "per": "month"}]


async def test_kills_under_load(stores: Rig, topics: TopicSet) -> None:
    """In a world with places of every kind, and caps."""
    world, dice = small_world(places=20, caps=CAPS), random.Random(11)
    scene = await Scene(stores, topics, world, devices=2000).begin()
    pair = Crew(stores, "trigger", 2, dice, BATCH_RECORDS=str(BATCH))
    async with scene.load(rate=200):
        await pair.until_ready()
        for _ in range(ROUNDS):
            wanted = await topics.count("notifications") + dice.randint(1, BURST)
            await topics.publish(scene.detections(BURST))
            await topics.until("notifications", wanted, pair.assert_running)
            await pair.harm("kill")
    expected = await scene.assert_published(repeats=True)
    await pair.stop()
    assert len(expected.notifications) > ROUNDS * BURST
    # A kill repeats at most what was in flight; a detection fires up to four campaigns.
    repeats = await topics.count("notifications") - len(expected.notifications)
    assert repeats <= ROUNDS * IN_FLIGHT * 4
    fired = {kind for each in expected.notifications.values() for kind in each}
    assert {"beacon", "geofence", "nfc", "qrcode"} <= fired
    await scene.assert_calls(expected, repeats=True)
    await assert_dead_letters(expected, topics, repeats=True)


@pytest.mark.timeout(2400)
async def test_exactly_once(stores: Rig, committed: TopicSet) -> None:
    dice = random.Random(int(os.environ.get("PROXIMITY_TEST_SEED", "7")))
    world, sent = World(), 0
    beacon = world.beacon(world.venue(world.company("one"), "only"), 1)
    # Claims are taken: a redelivery has to get its own again.
    world.campaign(beacon.venue, "always", [beacon], delay=3600)
    await world.save(stores.settings["DATABASE_URL"])
    await committed.create()
    stores.settings["BATCH_RECORDS"] = "100"
    pair = Crew(stores, "trigger", 2, dice, DELIVERY="exactly_once")
    for harm in ("kill", "freeze", "restart") * EXACT_ROUNDS:
        await pair.until_ready()
        wanted = await committed.count("notifications") + EXACT_BURST // dice.randint(3, 20)
        udids = (f"phone-{number}" for number in range(sent, sent + EXACT_BURST))
        await committed.publish(detection(beacon, udid) for udid in udids)
        sent += EXACT_BURST
        await committed.until("notifications", wanted, pair.assert_running)
        await pair.harm(harm)
    await committed.until_done()
    await pair.stop()
    published = await committed.read("notifications")
    seen = Counter(dict(record.headers)["id"] for record in published)
    assert max(seen.values()) == 1
    assert len(seen) == len({each.key for each in published}) == sent
