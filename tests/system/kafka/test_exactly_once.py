"""DELIVERY=exactly_once under kills, freezes and rebalances: a consumer that reads committed sees
each notification once, and none is missing.

With PROXIMITY_TEST_FULL=1 many more of each.
"""

import asyncio
import os
import random
import signal

import pytest

from tests.servers.waiting import eventually
from tests.system.kafka.stream import CommittedTopics, detections, ids, open_world
from tests.system.rig import Rig

FULL = "PROXIMITY_TEST_FULL" in os.environ
ROUNDS = 12 if FULL else 2
BURST = 30_000 if FULL else 4000
SETTINGS = {
    "KAFKA_SESSION_TIMEOUT": "2",
    "DRAIN_TIMEOUT": "5",
    "BATCH_RECORDS": "100",
    "DELIVERY": "exactly_once",
}


@pytest.mark.timeout(2400)
async def test_each_notification_is_seen_once(
    stores: Rig, kafka_bootstrap: str, topic_prefix: str
) -> None:
    dice = random.Random(int(os.environ.get("PROXIMITY_TEST_SEED", "7")))
    committed = CommittedTopics(kafka_bootstrap, topic_prefix, f"{topic_prefix}g.trigger")
    world = open_world(delay=3600)  # claims are taken: a redelivery has to get its own again
    await world.save(stores.environment["DATABASE_URL"])
    await committed.create()
    pair = [stores.trigger(**SETTINGS) for _ in range(2)]
    sent = 0
    async with committed.counting("notifications") as count:
        for harm in ("kill", "freeze", "rebalance") * ROUNDS:
            for each in pair:
                await each.until_ready()
            wanted = await count() + dice.randint(BURST // 20, BURST // 3)
            await committed.publish(detections(world, sent, BURST))
            sent += BURST

            async def under_way(wanted: int = wanted) -> bool:
                return await count() >= wanted

            await eventually(under_way, what="the burst is under way")
            victim = pair.pop(dice.randrange(2))
            if harm == "freeze":  # past its session timeout: its partitions get another owner
                victim.process.send_signal(signal.SIGSTOP)
                await asyncio.sleep(4)  # the session's length is the test's subject
                victim.process.send_signal(signal.SIGCONT)
                pair.append(victim)
                continue
            if harm == "kill":
                victim.kill()
            else:
                await victim.until_ready()
                await victim.stop()
            pair.append(stores.trigger(**SETTINGS))
    await committed.until_done(deadline=300)
    for each in pair:
        await each.until_ready()
        await each.stop()
    published = await committed.read("notifications")
    seen = ids(published)
    assert max(seen.values()) == 1
    assert len(seen) == len({each.key for each in published}) == sent


async def test_the_embedded_broker_is_refused(rig: Rig, sqlite_url: str) -> None:
    done = rig.start("run", "--embedded", DELIVERY="exactly_once", DATABASE_URL=sqlite_url)
    assert await done.ended() == 1
    assert "PROXIMITY_DELIVERY=exactly_once needs a real Kafka" in done.output
