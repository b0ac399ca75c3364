"""Two triggers of a group are killed at random under load: no notification is lost or added."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence

import pytest

from tests.system.comparison import assert_equal
from tests.system.load import steady_load
from tests.system.oracle import Oracle
from tests.system.rig import Command, Rig
from tests.system.topics import TopicSet
from tests.system.world import small_world

ROUNDS = 10
SEED = 11
RATE = 200
BURST = 4000  # so much at once that a kill mostly comes in the middle of a batch
SETTINGS = {"KAFKA_SESSION_TIMEOUT": "2", "DRAIN_TIMEOUT": "5"}


@pytest.mark.timeout(180)
async def test_ten_kills_under_load(
    rig: Rig, topics: TopicSet, redis_url: str, sqlite_url: str
) -> None:
    world = small_world()
    await world.save(sqlite_url)
    await topics.create()
    begin = time.time()
    settings = {**SETTINGS, "REDIS_URL": redis_url, "DATABASE_URL": sqlite_url}
    pair = [rig.trigger(**settings), rig.trigger(**settings)]
    dice = random.Random(SEED)
    async with (
        steady_load(world, topics, seed=SEED, rate=RATE, devices=2000) as traffic,
        topics.counting("notifications") as count,
    ):
        for each in pair:
            await each.until_ready()
        for _ in range(ROUNDS):
            before = await count()
            await topics.publish([traffic.detection(_now()) for _ in range(BURST)])
            await _until(count, before + dice.randint(1, BURST), pair)
            victim = dice.randrange(2)
            pair[victim].kill()
            pair[victim] = rig.trigger(**settings)
    await topics.until_done()
    for each in pair:
        await each.until_ready()
        await each.stop()

    expected = Oracle(world, traffic.cases, begin).walk(await topics.read("detections"))
    assert len(expected.notifications) > ROUNDS * BURST
    assert_equal(expected.notifications, await topics.read("notifications"), repeats=True)
    assert_equal(expected.connector_calls, await topics.read("connector-calls"), repeats=True)
    letters = {
        tuple(dict(letter.headers)[name] for name in ("partition", "offset"))
        for letter in await topics.read("dead-letters")
    }
    assert letters == {(str(p).encode(), str(o).encode()) for p, o in expected.dead}


def _now() -> int:
    return int(time.time() * 1000)


async def _until(count: Callable[[], Awaitable[int]], wanted: int, pair: Sequence[Command]) -> None:
    """Wait, polling without a pause, until there are so many notifications."""
    async with asyncio.timeout(40):
        while await count() < wanted:
            for each in pair:
                assert each.process.poll() is None, each.output
