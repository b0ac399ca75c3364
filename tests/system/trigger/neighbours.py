"""Two companies on the same partitions: the load of A must not delay B."""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from engine.process.lifecycle import cancel
from tests.servers.waiting import eventually
from tests.system.neighbour_latency import Memory, NeighbourLatencies, latencies
from tests.system.rig import Command
from tests.system.topics import TopicSet
from tests.system.traffic import Message
from tests.system.world import BeaconPlan, World

CALM = 120  # detections of B
TICK = 0.025  # seconds between two detections of the quiet company
QUIET = b"quiet "


class Neighbours:
    """Company A, whose campaigns the test creates, and company B with one campaign."""

    def __init__(self) -> None:
        self.world = World(datetime.now(UTC).replace(microsecond=0))
        self.loud_venue = self.world.venue(self.world.company("A"), "loud")
        self.loud = self.world.beacon(self.loud_venue, 1)
        quiet_venue = self.world.venue(self.world.company("B"), "quiet")
        self.quiet = self.world.beacon(quiet_venue, 2)
        self.world.campaign(quiet_venue, "of B", [self.quiet], delay=3600)
        self._numbers = itertools.count()

    def campaigns(self, count: int, **fields: Any) -> None:
        """Create campaigns at A's beacon."""
        for number in range(count):
            self.world.campaign(self.loud_venue, f"A {number}", [self.loud], **fields)

    def spread(self, count: int, **fields: Any) -> list[Message]:
        """One campaign at so many beacons; a detection at each, too far away to fire."""
        plans = [self.world.beacon(self.loud_venue, 100 + n) for n in range(count)]
        self.world.campaign(self.loud_venue, "A everywhere", plans, **fields)
        return [self._message(plan, b"far ", {}, proximity="unknown") for plan in plans]

    def of_loud(self, count: int, **device: Any) -> list[Message]:
        """Detections of A's beacon by unknown phones."""
        return [self._message(self.loud, b"loud ", device) for _ in range(count)]

    @asynccontextmanager
    async def quiet_stream(self, topics: TopicSet) -> AsyncIterator[None]:
        """Publish a detection of B's beacon every TICK seconds, each by a new phone."""
        task = asyncio.create_task(self._tick(topics))
        try:
            yield
            assert not task.done(), task
        finally:
            await cancel([task])

    async def _tick(self, topics: TopicSet) -> None:
        async with topics.publishing() as send:
            while True:
                await send(self._message(self.quiet, QUIET, {}))
                # The pace of the load, not a wait for something to happen.
                await asyncio.sleep(TICK)

    def _message(
        self, plan: BeaconPlan, prefix: bytes, device: dict[str, Any], proximity: str = "near"
    ) -> Message:
        udid = f"{prefix.decode()}{next(self._numbers)} {time.time()}"
        uuid, major, minor = plan.triple
        body = {"uuid": uuid, "major": major, "minor": minor, "proximity": proximity}
        value = json.dumps(body | {"device": {"udid": udid, **device}}).encode()
        return Message(0, udid.encode(), value)


class Scene:
    """A trigger under measurement, and its memory from now on."""

    def __init__(
        self, trigger: Command, topics: TopicSet, bootstrap: str, neighbours: Neighbours
    ) -> None:
        self.trigger = trigger
        self.memory = Memory(trigger)
        self._topics = topics
        self._bootstrap = bootstrap
        self._neighbours = neighbours

    async def b_is_notified(
        self, loud: Sequence[Message], leads_to: int, topic: str
    ) -> NeighbourLatencies:
        """B's latencies without load, and while `loud` is processed (its output on `topic`)."""
        async with (
            self._topics.counting("notifications") as notified,
            self._topics.counting(topic) as count,
            self._neighbours.quiet_stream(self._topics),
        ):
            calm_from, begin = time.time(), await notified()
            await eventually(
                lambda: self._at_least(notified, begin + CALM), deadline=60, what="B alone"
            )
            loud_from, before = time.time(), await count()
            # (In a thread: B's phones are not to wait for this process to have sent all of A's.)
            await asyncio.to_thread(lambda: asyncio.run(self._topics.publish(loud)))
            await eventually(
                lambda: self._at_least(count, before + leads_to), deadline=200, what="A's"
            )
            loud_until = time.time()
        await self._topics.until_done()
        seen = await latencies(self._bootstrap, self._topics, QUIET)
        calm = [seconds for sent, seconds in seen if calm_from <= sent < loud_from]
        beside = [seconds for sent, seconds in seen if loud_from <= sent < loud_until]
        assert len(calm) >= CALM - 1
        assert beside
        return NeighbourLatencies(calm, beside)

    async def _at_least(self, count: Callable[[], Awaitable[int]], enough: int) -> bool:
        assert self.trigger.process.poll() is None, self.trigger.output
        return await count() >= enough
