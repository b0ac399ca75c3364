"""SQL is stopped: the trigger works on, starts without SQL, and gets edits once it is back."""

import asyncio
import random
import time

import pytest

from catalog.database import open_database
from catalog.models import Campaign
from tests.servers.postgres import PostgresServer, create_database
from tests.servers.waiting import eventually
from tests.system.comparison import assert_equal
from tests.system.oracle import Oracle
from tests.system.probe import Probe
from tests.system.rig import Rig
from tests.system.topics import TopicSet
from tests.system.traffic import Traffic
from tests.system.world import small_world


@pytest.mark.timeout(150)
async def test_the_trigger_does_without_sql(
    rig: Rig, topics: TopicSet, redis_url: str, own_postgres: PostgresServer
) -> None:
    url = create_database(own_postgres.admin_url)
    world = small_world()
    await world.save(url)
    await topics.create()
    begin = time.time()
    traffic = Traffic(random.Random(3), [plan.triple for plan in world.beacons], devices=50)
    settings = {"REDIS_URL": redis_url, "DATABASE_URL": url}

    trigger = rig.trigger(**settings)
    await trigger.until_ready()
    await _some(traffic, topics)
    await asyncio.to_thread(own_postgres.stop)
    await _some(traffic, topics)
    assert await trigger.is_ready()
    await trigger.stop()

    trigger = rig.trigger(**settings)
    await trigger.until_ready()
    await _some(traffic, topics)
    expected = Oracle(world, traffic.cases, begin).walk(await topics.read("detections"))
    assert_equal(expected.notifications, await topics.read("notifications"), repeats=False)

    await asyncio.to_thread(own_postgres.start)
    first = world.beacons[0]
    await _close(first.campaigns[0].record, url)
    probe = Probe(topics)

    async def is_closed() -> bool:
        return "always 0" not in await probe.fires(first.triple)

    assert "seldom 0" in await probe.fires(first.triple)
    await eventually(is_closed, deadline=30, what="the edit has come through")
    await trigger.stop()


async def _some(traffic: Traffic, topics: TopicSet) -> None:
    await topics.publish([traffic.detection(int(time.time() * 1000)) for _ in range(500)])
    await topics.until_done()


async def _close(record: Campaign, url: str) -> None:
    database = open_database(url)
    async with database.write.begin() as session:
        (await session.get_one(Campaign, record.id)).active = False
    await database.close()
