"""Two triggers in a group, killed at random moments under load: nothing lost, nothing invented."""

import random
import time

import pytest

from tests.acceptance.comparison import assert_equal
from tests.acceptance.load import steady_load
from tests.acceptance.oracle import Oracle
from tests.acceptance.rig import Command, Rig
from tests.acceptance.topics import TopicSet
from tests.acceptance.world import small_world
from tests.servers.waiting import eventually

ROUNDS = 10
SEED = 11
RATE = 500
SETTINGS = {"KAFKA_SESSION_TIMEOUT": "2", "DRAIN_TIMEOUT": "5", "COMMIT_INTERVAL": "0.5"}


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
    async with steady_load(world, topics, seed=SEED, rate=RATE) as traffic:
        for each in pair:
            await each.until_ready()
        for _ in range(ROUNDS):
            await _progress(topics, dice.randint(1, 1500), pair)
            victim = dice.randrange(2)
            pair[victim].kill()
            pair[victim] = rig.trigger(**settings)
    await topics.until_done()
    for each in pair:
        await each.until_ready()
        await each.stop()

    expected = Oracle(world, traffic.cases, begin).walk(await topics.read("detections"))
    assert len(expected.notifications) > 5000
    assert_equal(expected.notifications, await topics.read("notifications"), repeats=True)
    assert_equal(expected.connector_calls, await topics.read("connector-calls"), repeats=True)
    letters = {
        tuple(dict(letter.headers)[name] for name in ("partition", "offset"))
        for letter in await topics.read("dead-letters")
    }
    assert letters == {(str(p).encode(), str(o).encode()) for p, o in expected.dead}


async def _progress(topics: TopicSet, count: int, pair: list[Command]) -> None:
    """Wait until so many more notifications are out."""
    before = await topics.count("notifications")

    async def enough() -> bool:
        for each in pair:
            assert each.process.poll() is None, each.output
        return await topics.count("notifications") >= before + count

    await eventually(enough, deadline=40, what="notifications come out")
