"""Any number and size of one company's campaigns: memory is bounded, and B does not wait."""

import os

import pytest

from tests.system.neighbour_latency import MIB, Memory, assert_not_delayed, create_with_broker_time
from tests.system.rig import Rig
from tests.system.topics import TopicSet
from tests.system.trigger.neighbours import Neighbours, Scene

pytestmark = pytest.mark.alone

FULL = "PROXIMITY_TEST_FULL" in os.environ
IN_FLIGHT_BYTES = 32 * MIB
# In flight, and as much again for what Python, aiokafka and the sockets hold of it.
MOST_GROWTH = 2 * IN_FLIGHT_BYTES
ROUNDS = 4  # a neighbour that is in the way is so each time; a busy machine is not


async def measured(
    rig: Rig,
    topics: TopicSet,
    bootstrap: str,
    neighbours: Neighbours,
    loud: int,
    leads_to: int,
    **settings: str,
) -> str:
    """Figures of a trigger while A sends `loud` detections; asserts memory and B's p99."""
    await neighbours.world.save(settings["DATABASE_URL"])
    await create_with_broker_time(bootstrap, topics)
    trigger = rig.trigger(**settings, IN_FLIGHT_BYTES=str(IN_FLIGHT_BYTES))
    await trigger.until_ready()
    scene = Scene(trigger, topics, bootstrap, neighbours)
    received = await assert_not_delayed(
        lambda: scene.b_is_notified(neighbours.of_loud(loud), leads_to, "notifications"), ROUNDS
    )
    scene.memory.assert_growth_below(MOST_GROWTH)
    summary = f"{leads_to} messages of A: {received}; {scene.memory}"
    await trigger.stop()
    return summary


@pytest.mark.timeout(600 if FULL else 240)
async def test_sixty_campaigns(
    rig: Rig,
    topics: TopicSet,
    kafka_bootstrap: str,
    redis_url: str,
    sqlite_url: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """5,000 detections at 60 campaigns took 665 MB, and B waited for 9.7 s."""
    neighbours = Neighbours()
    neighbours.campaigns(30, delay=3600)
    neighbours.campaigns(30)
    loud = 5000 if FULL else 1000
    summary = await measured(
        rig,
        topics,
        kafka_bootstrap,
        neighbours,
        loud,
        60 * loud,
        REDIS_URL=redis_url,
        DATABASE_URL=sqlite_url,
    )
    with capsys.disabled():
        print(f"\n{summary}")


@pytest.mark.timeout(600 if FULL else 240)
async def test_a_campaign_of_900_kb(
    rig: Rig,
    topics: TopicSet,
    kafka_bootstrap: str,
    redis_url: str,
    sqlite_url: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """800 detections of it took 1.4 GB; the interface refuses such content, an old row has it."""
    neighbours = Neighbours()
    neighbours.campaigns(1, delay=3600, format="html", template=None, html="x" * 900_000)
    loud = 800 if FULL else 150
    summary = await measured(
        rig,
        topics,
        kafka_bootstrap,
        neighbours,
        loud,
        loud,
        REDIS_URL=redis_url,
        DATABASE_URL=sqlite_url,
    )
    with capsys.disabled():
        print(f"\n{summary}")


@pytest.mark.timeout(120)
async def test_a_large_campaign_at_many_beacons(
    rig: Rig, topics: TopicSet, redis_url: str, sqlite_url: str
) -> None:
    """The cache of the index had a copy of the content for each beacon."""
    beacons = 1000 if FULL else 150
    neighbours = Neighbours()
    far = neighbours.spread(beacons, format="html", template=None, html="x" * 900_000)
    await neighbours.world.save(sqlite_url)
    await topics.create()
    trigger = rig.trigger(REDIS_URL=redis_url, DATABASE_URL=sqlite_url)
    await trigger.until_ready()
    memory = Memory(trigger)
    async with topics.publishing() as send:
        for message in far:  # one by one, or few batches would have them all
            await send(message)
            await send.settle()
    await topics.until_done()
    samples = await trigger.metrics()
    assert samples.by("detections", "reason") == {"unknown_proximity": beacons}
    memory.assert_growth_below(64 * MIB)
    await trigger.stop()
