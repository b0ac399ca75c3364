"""Each detection leads to one notification, while triggers are killed, frozen and restarted: with
exactly_once a consumer that reads committed sees each once.

With PROXIMITY_TEST_FULL=1 many more of each.
"""

import os
import random
from collections import Counter

import pytest

from tests.system.rig import Crew, Rig
from tests.system.topics import TopicSet
from tests.system.traffic import detection
from tests.system.world import World

FULL = "PROXIMITY_TEST_FULL" in os.environ
ROUNDS = 12 if FULL else 2
BURST = 30_000 if FULL else 4000


@pytest.mark.timeout(2400)
async def test_exactly_once(stores: Rig, committed: TopicSet) -> None:
    dice = random.Random(int(os.environ.get("PROXIMITY_TEST_SEED", "7")))
    world, sent = World(), 0
    beacon = world.beacon(world.venue(world.company("one"), "only"), 1)
    # Claims are taken: a redelivery has to get its own again.
    world.campaign(beacon.venue, "always", [beacon], delay=3600)
    await world.save(stores.environment["DATABASE_URL"])
    await committed.create()
    stores.environment["BATCH_RECORDS"] = "100"
    pair = Crew(stores, "trigger", 2, dice, DELIVERY="exactly_once")
    for harm in ("kill", "freeze", "restart") * ROUNDS:
        await pair.until_ready()
        wanted = await committed.count("notifications") + BURST // dice.randint(3, 20)
        udids = (f"phone-{number}" for number in range(sent, sent + BURST))
        await committed.publish(detection(beacon, udid) for udid in udids)
        sent += BURST
        await committed.until("notifications", wanted, pair.assert_running)
        await pair.harm(harm)
    await committed.until_done()
    await pair.stop()
    published = await committed.read("notifications")
    seen = Counter(dict(record.headers)["id"] for record in published)
    assert max(seen.values()) == 1
    assert len(seen) == len({each.key for each in published}) == sent


async def test_the_embedded_broker_cannot_do_exactly_once(rig: Rig, sqlite_url: str) -> None:
    done = rig.start("run", "--embedded", DELIVERY="exactly_once", DATABASE_URL=sqlite_url)
    assert await done.ended() == 1
    assert "PROXIMITY_DELIVERY=exactly_once needs a real Kafka" in done.output
