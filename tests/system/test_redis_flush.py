"""Redis loses its memory while the trigger runs: the index comes back, nothing becomes unknown."""

import asyncio
import time

import pytest
from redis.asyncio import Redis

from tests.servers.postgres import PostgresServer, create_database
from tests.servers.waiting import eventually
from tests.system.comparison import messages_by_id
from tests.system.load import steady_load
from tests.system.oracle import Expected, Oracle
from tests.system.rig import Command, Rig
from tests.system.topics import TopicSet
from tests.system.world import World, small_world

FLUSHES = 4
DAY = 86_400


def always_expected(expected: Expected, world: World) -> set[str]:
    """Ids that do not depend on lost claims: uncapped campaigns, and the first of a long cap."""
    steady = {c.record.id for b in world.beacons for c in b.campaigns if c.record.delay in (0, DAY)}
    return {number for number, m in expected.notifications.items() if m["campaign"]["id"] in steady}


async def assert_nothing_unknown(trigger: Command) -> None:
    samples = await trigger.metrics()
    assert "unknown_beacon" not in samples.by("detections", "reason")
    assert samples.by("detections", "reason")["granted"] > 0


@pytest.mark.timeout(120)
async def test_the_index_is_rebuilt_automatically(
    rig: Rig, topics: TopicSet, redis_url: str, sqlite_url: str
) -> None:
    world = small_world()
    await world.save(sqlite_url)
    await topics.create()
    begin = time.time()
    # A small cache, so that beacons are looked up in Redis all the time.
    trigger = rig.trigger(REDIS_URL=redis_url, DATABASE_URL=sqlite_url)
    await trigger.until_ready()
    async with steady_load(world, topics, seed=5, rate=400) as traffic:
        for _ in range(FLUSHES):
            before = (await trigger.metrics()).total("detections")
            async with Redis.from_url(redis_url) as redis:
                await redis.flushall()

            async def moved(before: int = before) -> bool:
                return (await trigger.metrics()).total("detections") > before + 300

            await eventually(moved, what="detections are decided after the flush")
    await topics.until_done()
    await eventually(trigger.is_ready)
    await assert_nothing_unknown(trigger)
    await trigger.stop()
    assert trigger.output.count("index built") >= FLUSHES
    expected = Oracle(world, traffic.cases, begin).walk(await topics.read("detections"))
    found = messages_by_id(await topics.read("notifications"))
    assert not always_expected(expected, world) - found.keys()


@pytest.mark.timeout(120)
async def test_while_sql_is_down_detections_wait(
    rig: Rig, topics: TopicSet, redis_url: str, own_postgres: PostgresServer
) -> None:
    url = create_database(own_postgres.admin_url)
    world = small_world()
    await world.save(url)
    await topics.create()
    begin = time.time()
    trigger = rig.trigger(REDIS_URL=redis_url, DATABASE_URL=url)
    await trigger.until_ready()
    async with steady_load(world, topics, seed=6, rate=200) as traffic:
        await eventually(lambda: _counted(trigger, 200))
        await asyncio.to_thread(own_postgres.stop)
        async with Redis.from_url(redis_url) as redis:
            await redis.flushall()
        await eventually(lambda: _index_is_missing(trigger), what="not ready")
        await asyncio.to_thread(own_postgres.start)
        await eventually(trigger.is_ready, deadline=30, what="ready again")
    await topics.until_done()
    await assert_nothing_unknown(trigger)
    await trigger.stop()
    expected = Oracle(world, traffic.cases, begin).walk(await topics.read("detections"))
    found = messages_by_id(await topics.read("notifications"))
    assert not always_expected(expected, world) - found.keys()


async def _counted(trigger: Command, count: int) -> bool:
    return (await trigger.metrics()).total("detections") > count


async def _index_is_missing(trigger: Command) -> bool:
    checks = await trigger.checks()
    return checks == {
        "running": True,
        "partitions_assigned": True,
        "index_built": False,
        "redis": True,
        "redis_writes": True,
        "clock": True,
        "kafka": True,
    }
