"""Any number and size of one company's campaigns: memory is bounded, and B does not wait."""

import os
from collections.abc import Callable

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


def sixty_campaigns(neighbours: Neighbours) -> None:
    neighbours.campaigns(30, delay=3600)
    neighbours.campaigns(30)


def a_campaign_of_900_kb(neighbours: Neighbours) -> None:
    neighbours.campaigns(1, delay=3600, format="html", template=None, html="x" * 900_000)


@pytest.mark.timeout(600 if FULL else 240)
@pytest.mark.parametrize(
    ("add", "loud", "each"),
    [
        (sixty_campaigns, 5000 if FULL else 1000, 60),
        (a_campaign_of_900_kb, 800 if FULL else 150, 1),
    ],
)
async def test_much_work_of_a(
    stores: Rig,
    topics: TopicSet,
    kafka_bootstrap: str,
    add: Callable[[Neighbours], None],
    loud: int,
    each: int,
) -> None:
    """5,000 detections at 60 campaigns took 665 MB, and B waited for 9.7 s; 800 of a campaign of
    900 kB took 1.4 GB (the interface refuses such content, an old row has it)."""
    neighbours = Neighbours()
    add(neighbours)
    await neighbours.world.save(stores.environment["DATABASE_URL"])
    await create_with_broker_time(kafka_bootstrap, topics)
    trigger = stores.trigger(IN_FLIGHT_BYTES=str(IN_FLIGHT_BYTES))
    await trigger.until_ready()
    scene = Scene(trigger, topics, kafka_bootstrap, neighbours)
    received = await assert_not_delayed(
        lambda: scene.b_is_notified(neighbours.of_loud(loud), each * loud, "notifications"), ROUNDS
    )
    scene.memory.assert_growth_below(MOST_GROWTH)
    print(received, scene.memory)
    await trigger.stop()


@pytest.mark.timeout(120)
async def test_a_large_campaign_at_many_beacons(stores: Rig, topics: TopicSet) -> None:
    """The cache of the index had a copy of the content for each beacon."""
    beacons = 1000 if FULL else 150
    neighbours = Neighbours()
    far = neighbours.spread(beacons, format="html", template=None, html="x" * 900_000)
    await neighbours.world.save(stores.environment["DATABASE_URL"])
    await topics.create()
    trigger = stores.trigger()
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
