"""A steady stream of detections during a test."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from engine.process.lifecycle import cancel
from tests.system.topics import TopicSet
from tests.system.traffic import Traffic
from tests.system.world import World

_TICK = 0.02


@asynccontextmanager
async def steady_load(
    world: World,
    topics: TopicSet,
    *,
    seed: int,
    rate: int,
    malformed: float = 0.005,
    devices: int = 200,
) -> AsyncIterator[Traffic]:
    """Publish `rate` detections a second, of known beacons as they happen, within the context."""
    dice = random.Random(seed)
    traffic = Traffic(dice, [plan.triple for plan in world.beacons], devices=devices)
    enough = asyncio.Event()
    task = asyncio.create_task(_publish(topics, traffic, dice, rate, malformed, enough))
    try:
        yield traffic
        enough.set()
        await task
    finally:
        await cancel([task])


async def _publish(
    topics: TopicSet,
    traffic: Traffic,
    dice: random.Random,
    rate: int,
    malformed: float,
    enough: asyncio.Event,
) -> None:
    begin, sent = time.monotonic(), 0
    async with topics.publishing() as send:
        while not enough.is_set():
            due = int((time.monotonic() - begin) * rate)
            for _ in range(due - sent):
                bad = dice.random() < malformed
                stamp = dice.choice((None, int(time.time() * 1000)))
                await send(traffic.malformed() if bad else traffic.detection(stamp))
            sent = max(due, sent)
            # The pace of the load, not a wait for something to happen.
            await asyncio.sleep(_TICK)
