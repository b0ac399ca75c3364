"""Two companies on the same partitions. Whatever A has or sends, B does not wait, and the trigger's
memory is bounded."""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from itertools import count, islice

import pytest

from catalog.models import Beacon
from engine.process.lifecycle import cancel
from tests.system.neighbours import MIB, Latencies, Memory, assert_not_delayed, latencies
from tests.system.rig import Rig
from tests.system.topics import Message, TopicSet
from tests.system.traffic import detection
from tests.system.world import World

pytestmark = pytest.mark.alone

FULL = "PROXIMITY_TEST_FULL" in os.environ
IN_FLIGHT_BYTES = 32 * MIB
# In flight, and as much again for what Python, aiokafka and the sockets hold of it.
MOST_GROWTH = 2 * IN_FLIGHT_BYTES
CALM = 120  # detections of B
TICK = 0.025  # seconds between two of them
LARGE = "x" * 900_000  # the interface refuses such content, an old row has it
_numbers = count()


def by_a_new_device(beacon: Beacon, prefix: str, **fields: object) -> Message:
    """A detection whose device's name ends with the time."""
    return detection(beacon, f"{prefix} {next(_numbers)} {time.time()}", **fields)


def sixty_campaigns(world: World) -> Iterator[Message]:
    """5,000 detections took 665 MB, and B waited for 9.7 s."""
    loud = world.beacons[0]
    for number in range(60):
        world.campaign(loud.venue, f"A {number}", [loud], delay=number % 2 * 3600)
    return (by_a_new_device(loud, "loud") for _ in count())


def a_large_campaign(world: World) -> Iterator[Message]:
    """800 detections took 1.4 GB; and the cache of the index had a copy for each beacon."""
    loud = world.beacons[0]
    far = [world.beacon(loud.venue, 100 + number) for number in range(150)]
    large = {"format": "html", "template": None, "html": LARGE, "delay": 3600}
    world.campaign(loud.venue, "A everywhere", [loud, *far], **large)

    def messages() -> Iterator[Message]:
        for number in count():
            yield by_a_new_device(far[number % len(far)], "far", proximity="unknown")
            yield by_a_new_device(loud, "loud")

    return messages()


def junk(world: World) -> Iterator[Message]:
    """A thousand bad records of one phone in a row stopped the trigger, at every start."""
    yield from [detection(world.beacons[0], "one phone".ljust(256, "x"))] * 2000
    while True:
        yield detection(world.beacons[0], f"{next(_numbers)}".ljust(256, "x"))


async def tick(topics: TopicSet, quiet: Beacon) -> None:
    """Detections of B's beacon at a pace."""
    async with topics.publishing() as send:
        while True:
            await send(by_a_new_device(quiet, "quiet"))
            await asyncio.sleep(TICK)


async def b_is_notified(
    topics: TopicSet, quiet: Beacon, loud: list[Message], leads_to: int, topic: str
) -> Latencies:
    """B's latencies without load, and while `loud` is processed (its output on `topic`)."""
    ticking = asyncio.create_task(tick(topics, quiet))
    calm_from = time.time()
    await topics.until("notifications", await topics.count("notifications") + CALM)
    loud_from, before = time.time(), await topics.count(topic)
    # (In a thread: B's phones are not to wait for this process to have sent all of A's.)
    await asyncio.to_thread(lambda: asyncio.run(topics.publish(loud)))
    await topics.until(topic, before + leads_to)
    loud_until = time.time()
    assert not ticking.done(), ticking
    await cancel([ticking])
    await topics.until_done()
    seen = await latencies(topics, b"quiet ")
    calm = [seconds for sent, seconds in seen if calm_from <= sent < loud_from]
    beside = [seconds for sent, seconds in seen if loud_from <= sent < loud_until]
    assert len(calm) >= CALM - 1
    assert beside
    return Latencies(calm, beside)


@pytest.mark.parametrize(
    ("loud", "records", "messages", "topic"),
    [
        (sixty_campaigns, 5000 if FULL else 1000, 60, "notifications"),
        (a_large_campaign, 1600 if FULL else 300, 0.5, "notifications"),
        (junk, 60_000 if FULL else 14_000, 1, "dead-letters"),
    ],
)
async def test_b_does_not_wait(
    stores: Rig,
    topics: TopicSet,
    loud: Callable[[World], Iterator[Message]],
    records: int,
    messages: float,
    topic: str,
) -> None:
    world = World()
    world.beacon(world.venue(world.company("A"), "loud"), 1)
    quiet = world.beacon(world.venue(world.company("B"), "quiet"), 2)
    world.campaign(quiet.venue, "of B", [quiet], delay=3600)
    of_a = loud(world)
    await world.save(stores.environment["DATABASE_URL"])
    await topics.create(broker_time=True)
    trigger = await stores.ready("trigger", IN_FLIGHT_BYTES=str(IN_FLIGHT_BYTES))
    memory = Memory(trigger)

    async def measure() -> Latencies:
        made = list(islice(of_a, records))
        return await b_is_notified(topics, quiet, made, int(messages * records), topic)

    await assert_not_delayed(measure)
    memory.assert_growth_below(MOST_GROWTH)
    await trigger.stop()
