"""Redis is restored from an older file while a trigger works: the whole product heals itself."""

import asyncio
import shutil
import time
from pathlib import Path

import pytest

from catalog.database import open_database
from catalog.models import Campaign
from tests.servers.redis import RedisServer
from tests.servers.waiting import eventually
from tests.system.comparison import messages_by_id
from tests.system.load import steady_load
from tests.system.oracle import Oracle
from tests.system.probe import Probe
from tests.system.rig import Command, Rig
from tests.system.test_redis_flush import always_expected, assert_nothing_unknown
from tests.system.topics import TopicSet
from tests.system.world import small_world

HEALED = "the index in Redis is older than SQL: rebuilding it from SQL"
HEALS_WITHIN = 30.0  # on a machine that is busy; the figure is printed


@pytest.mark.timeout(180)
async def test_a_deactivated_campaign_does_not_fire_after_a_restore(
    rig: Rig, topics: TopicSet, own_redis: RedisServer, sqlite_url: str, tmp_path: Path
) -> None:
    world = small_world()
    await world.save(sqlite_url)
    await topics.create()
    begin = time.time()
    settings = {"REDIS_URL": own_redis.url, "DATABASE_URL": sqlite_url}
    trigger = rig.trigger(**settings)
    await trigger.until_ready()
    plan = world.beacons[0]
    switched, probe = plan.campaigns[0].record, Probe(topics)
    assert switched.name in await probe.fires(plan.triple)
    copy = tmp_path / "older"
    await asyncio.to_thread(shutil.copytree, own_redis.directory, copy)
    await _switch_off(switched, sqlite_url)

    async def is_off() -> bool:
        return switched.name not in await probe.fires(plan.triple)

    await eventually(is_off, deadline=HEALS_WITHIN)
    async with steady_load(world, topics, seed=5, rate=200) as traffic:
        await eventually(lambda: _counted(trigger, 300), deadline=60)
        await asyncio.to_thread(_restore, own_redis, copy)
        restored_at = time.monotonic()
        await eventually(lambda: HEALED in trigger.output, deadline=HEALS_WITHIN)
        await eventually(lambda: trigger.output.count("index built") == 2, deadline=HEALS_WITHIN)
        print(f"\nhealed {time.monotonic() - restored_at:.1f} s after the restored Redis was up")
    await topics.until_done()
    assert await is_off()
    await assert_nothing_unknown(trigger)
    await trigger.stop()
    assert trigger.output.count(HEALED) == 1
    detections = await topics.read("detections")
    loaded = [record for record in detections if not (record.key or b"").startswith(b"probe ")]
    expected = Oracle(world, traffic.cases, begin).walk(loaded)
    always = {
        number
        for number in always_expected(expected, world)
        if expected.notifications[number]["campaign"]["id"] != switched.id
    }
    found = messages_by_id(await topics.read("notifications"))
    assert not always - found.keys()


def _restore(server: RedisServer, copy: Path) -> None:
    server.kill()
    shutil.rmtree(server.directory)
    shutil.copytree(copy, server.directory)
    server.start()


async def _switch_off(record: Campaign, url: str) -> None:
    database = open_database(url)
    async with database.write.begin() as session:
        (await session.get_one(Campaign, record.id)).active = False
    await database.close()


async def _counted(trigger: Command, count: int) -> bool:
    return (await trigger.metrics()).total("detections") > count
