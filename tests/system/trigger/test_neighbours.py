"""Two companies on the same partitions. Whatever A has or sends, B does not wait, and the trigger's
memory is bounded."""

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from itertools import count, islice

import pytest

from engine.process.lifecycle import cancel
from tests.servers.waiting import eventually
from tests.system.neighbour_latency import (
    MIB,
    Memory,
    NeighbourLatencies,
    assert_not_delayed,
    latencies,
)
from tests.system.rig import Rig
from tests.system.topics import TopicSet
from tests.system.traffic import Message
from tests.system.world import Triple, World

pytestmark = pytest.mark.alone

FULL = "PROXIMITY_TEST_FULL" in os.environ
IN_FLIGHT_BYTES = 32 * MIB
# In flight, and as much again for what Python, aiokafka and the sockets hold of it.
MOST_GROWTH = 2 * IN_FLIGHT_BYTES
ROUNDS = 4  # a neighbour that is in the way is so each time; a busy machine is not
CALM = 120  # detections of B
TICK = 0.025  # seconds between two of them
A, B = 1, 2  # minors of the beacons
LARGE = "x" * 900_000  # the interface refuses such content, an old row has it
_numbers = count()


def detection(place: Triple, prefix: str, proximity: str = "near", udid: str = "") -> Message:
    """A detection by a new device, whose name ends with the time, or by `udid`."""
    udid = udid or f"{prefix} {next(_numbers)} {time.time()}"
    uuid, major, minor = place
    body = {"uuid": uuid, "major": major, "minor": minor, "proximity": proximity}
    value = json.dumps(body | {"device": {"udid": udid}}).encode()
    return Message(0, udid.encode(), value)


def sixty_campaigns(world: World) -> Iterator[Message]:
    """5,000 detections took 665 MB, and B waited for 9.7 s."""
    loud = world.beacons[0]
    for number in range(60):
        world.campaign(loud.venue, f"A {number}", [loud], delay=number % 2 * 3600)
    return (detection(loud.triple, "loud") for _ in count())


def a_large_campaign(world: World) -> Iterator[Message]:
    """800 detections took 1.4 GB; and the cache of the index had a copy for each beacon."""
    loud = world.beacons[0]
    far = [world.beacon(loud.venue, 100 + number) for number in range(150)]
    large = {"format": "html", "template": None, "html": LARGE, "delay": 3600}
    world.campaign(loud.venue, "A everywhere", [loud, *far], **large)

    def messages() -> Iterator[Message]:
        for number in count():
            yield detection(far[number % len(far)].triple, "far", "unknown")
            yield detection(loud.triple, "loud")

    return messages()


def junk(world: World) -> Iterator[Message]:
    """A thousand bad records of one phone in a row stopped the trigger, at every start."""
    place = world.beacons[0].triple
    yield from [detection(place, "", udid="one phone".ljust(256, "x"))] * 2000
    while True:
        yield detection(place, "", udid=f"{next(_numbers)}".ljust(256, "x"))


async def tick(topics: TopicSet, quiet: Triple) -> None:
    """Detections of B's beacon at a pace."""
    async with topics.publishing() as send:
        while True:
            await send(detection(quiet, "quiet"))
            await asyncio.sleep(TICK)


async def b_is_notified(
    topics: TopicSet, quiet: Triple, loud: list[Message], leads_to: int, topic: str
) -> NeighbourLatencies:
    """B's latencies without load, and while `loud` is processed (its output on `topic`)."""
    async with topics.counting("notifications") as notified, topics.counting(topic) as made:
        ticking = asyncio.create_task(tick(topics, quiet))
        calm_from = time.time()
        await _until(notified, await notified() + CALM)
        loud_from, before = time.time(), await made()
        # (In a thread: B's phones are not to wait for this process to have sent all of A's.)
        await asyncio.to_thread(lambda: asyncio.run(topics.publish(loud)))
        await _until(made, before + leads_to)
        loud_until = time.time()
        assert not ticking.done(), ticking
        await cancel([ticking])
    await topics.until_done()
    seen = await latencies(topics, b"quiet ")
    calm = [seconds for sent, seconds in seen if calm_from <= sent < loud_from]
    beside = [seconds for sent, seconds in seen if loud_from <= sent < loud_until]
    assert len(calm) >= CALM - 1
    assert beside
    return NeighbourLatencies(calm, beside)


async def _until(made: Callable[[], Awaitable[int]], enough: int) -> None:
    async def is_enough() -> bool:
        return await made() >= enough

    await eventually(is_enough, deadline=200, what=f"{enough} messages")


@pytest.mark.timeout(2400)
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
    world = World(datetime.now(UTC).replace(microsecond=0))
    world.beacon(world.venue(world.company("A"), "loud"), A)
    quiet = world.beacon(world.venue(world.company("B"), "quiet"), B)
    world.campaign(quiet.venue, "of B", [quiet], delay=3600)
    of_a = loud(world)
    await world.save(stores.environment["DATABASE_URL"])
    await topics.create(broker_time=True)
    trigger = stores.trigger(IN_FLIGHT_BYTES=str(IN_FLIGHT_BYTES))
    await trigger.until_ready()
    memory = Memory(trigger)

    async def measure() -> NeighbourLatencies:
        leads_to = int(messages * records)
        made = list(islice(of_a, records))
        return await b_is_notified(topics, quiet.triple, made, leads_to, topic)

    received = await assert_not_delayed(measure, ROUNDS)
    memory.assert_growth_below(MOST_GROWTH)
    print(received, memory)
    await trigger.stop()
