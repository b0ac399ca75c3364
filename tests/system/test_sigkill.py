"""Two triggers of a group are killed at random under load: no notification is lost or added."""

import random

from tests.system.rig import Crew, Rig
from tests.system.scene import Scene, assert_dead_letters
from tests.system.topics import PARTITIONS, TopicSet
from tests.system.world import small_world

ROUNDS = 4
BATCH = 100
# A partition is paused at two batches, and one fetch brings another one at most.
IN_FLIGHT = 3 * BATCH * PARTITIONS
BURST = 2500  # so much at once that a kill mostly comes in the middle of a batch
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
