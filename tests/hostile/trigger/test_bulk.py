"""One company's campaigns, however many and however large: bounded memory, and B does not wait."""

import os
import time
from typing import Any

import pytest

from tests.acceptance.rig import Command, Rig
from tests.acceptance.topics import TopicSet
from tests.acceptance.traffic import Message
from tests.hostile.trigger.neighbours import (
    Memory,
    Neighbours,
    create_with_broker_time,
    p99,
    quiet_latencies,
)
from tests.servers.waiting import eventually

FULL = "PROXIMITY_TEST_FULL" in os.environ
MIB = 1024 * 1024
IN_FLIGHT_BYTES = 32 * MIB
# In flight, and as much again for what Python, aiokafka and the sockets hold of it.
MOST_GROWTH = 2 * IN_FLIGHT_BYTES
BEYOND_CALM = 0.25  # seconds
CALM = 120  # detections of B
ROUNDS = 4  # a neighbour that is in the way is so each time; a busy machine is not


class Scene:
    """A trigger under measurement."""

    def __init__(self, trigger: Command, topics: TopicSet, bootstrap: str) -> None:
        self.trigger = trigger
        self.topics = topics
        self.bootstrap = bootstrap

    async def b_sees(self, neighbours: Neighbours, loud: list[Message], leads_to: int) -> str:
        """B's p99 in calm and while `loud` is worked off; asserts that it does not wait."""
        async with (
            self.topics.counting("notifications") as count,
            neighbours.quiet_stream(self.topics),
        ):
            begin = await count()
            await eventually(
                lambda: self._at_least(count, begin + CALM), deadline=60, what="B alone"
            )
            loud_from, before = time.time(), await count()
            await self.topics.publish(loud)
            await eventually(
                lambda: self._at_least(count, before + leads_to), deadline=200, what="A's"
            )
            loud_until = time.time()
        await self.topics.until_done()
        seen = await quiet_latencies(self.bootstrap, self.topics)
        calm = [seconds for sent, seconds in seen if sent < loud_from]
        beside = [seconds for sent, seconds in seen if loud_from <= sent < loud_until]
        assert len(calm) >= CALM - 1
        assert beside
        figures = (
            f"{leads_to} messages of A in {loud_until - loud_from:.1f} s; B's p99 of {len(beside)} "
            f"{1000 * p99(beside):.0f} ms, calm {1000 * p99(calm[-500:]):.0f} ms"
        )
        assert p99(beside) - p99(calm[-500:]) < BEYOND_CALM, figures
        return figures

    async def _at_least(self, count: Any, enough: int) -> bool:
        assert self.trigger.process.poll() is None, self.trigger.output
        return bool(await count() >= enough)


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
    memory = Memory(trigger)
    scene = Scene(trigger, topics, bootstrap)
    for attempt in range(ROUNDS):
        try:
            figures = await scene.b_sees(neighbours, neighbours.of_loud(loud), leads_to)
            break
        except AssertionError:
            if attempt == ROUNDS - 1:
                raise
    told = f"{figures}; memory {memory.before // MIB} to {memory.peak // MIB} MiB"
    assert memory.growth < MOST_GROWTH, told
    await trigger.stop()
    return told


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
    told = await measured(
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
        print(f"\n{told}")


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
    told = await measured(
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
        print(f"\n{told}")


@pytest.mark.timeout(120)
async def test_a_large_campaign_at_many_beacons(
    rig: Rig, topics: TopicSet, redis_url: str, sqlite_url: str
) -> None:
    """What a process remembers of the index held its content once a beacon."""
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
    assert memory.growth < 64 * MIB, f"{memory.growth // MIB} MiB"
    await trigger.stop()
