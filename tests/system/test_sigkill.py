"""Two triggers of a group are killed at random under load: no notification is lost or added."""

import asyncio
import random

from tests.system.scene import Scene, assert_equal

ROUNDS = 4
SEED = 11
RATE = 200
BURST = 4000  # so much at once that a kill mostly comes in the middle of a batch
SETTINGS = {"KAFKA_SESSION_TIMEOUT": "2", "DRAIN_TIMEOUT": "5"}


async def test_kills_under_load(scene_of_places: Scene) -> None:
    scene = scene_of_places
    topics, dice = scene.topics, random.Random(SEED)
    pair = [scene.rig.trigger(**SETTINGS) for _ in range(2)]
    async with (
        scene.load(seed=SEED, rate=RATE, devices=2000),
        topics.counting("notifications") as count,
    ):
        for each in pair:
            await each.until_ready()
        for _ in range(ROUNDS):
            wanted = await count() + dice.randint(1, BURST)
            await topics.publish(scene.detections(BURST))
            async with asyncio.timeout(40):
                while await count() < wanted:  # without a pause, to hit a batch
                    assert all(each.process.poll() is None for each in pair)
            victim = dice.randrange(2)
            pair[victim].kill()
            pair[victim] = scene.rig.trigger(**SETTINGS)
    expected = await scene.assert_published(repeats=True)
    for each in pair:
        await each.until_ready()
        await each.stop()
    assert len(expected.notifications) > ROUNDS * BURST
    fired = {kind for each in expected.notifications.values() for kind in each}
    assert {"beacon", "geofence", "nfc", "qrcode"} <= fired
    assert_equal(expected.connector_calls, await topics.read("connector-calls"), repeats=True)
    letters = {
        tuple(dict(letter.headers)[name] for name in ("partition", "offset"))
        for letter in await topics.read("dead-letters")
    }
    assert letters == {(str(p).encode(), str(o).encode()) for p, o in expected.dead}
