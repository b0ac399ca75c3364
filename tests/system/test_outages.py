"""Redis and Kafka are down for a while under load: the trigger waits, and loses nothing."""

import asyncio
import os
import random
import time

import pytest

from tests.servers.kafka.server import KafkaServer
from tests.servers.redis import RedisServer
from tests.servers.waiting import eventually
from tests.system.comparison import assert_equal
from tests.system.load import steady_load
from tests.system.oracle import Oracle
from tests.system.rig import Command, Rig
from tests.system.topics import TopicSet
from tests.system.traffic import Traffic
from tests.system.world import small_world

KINDS = ["own_redis", *(["own_redis_cluster"] if "PROXIMITY_TEST_FULL" in os.environ else [])]


@pytest.fixture(params=KINDS)
def going(request: pytest.FixtureRequest) -> RedisServer:
    """A Redis of the test's own: a single server, or a cluster."""
    server: RedisServer = request.getfixturevalue(request.param)
    return server


@pytest.mark.timeout(90)
async def test_redis_down_for_a_while(
    rig: Rig, topics: TopicSet, going: RedisServer, sqlite_url: str
) -> None:
    world = small_world()
    await world.save(sqlite_url)
    await topics.create()
    begin = time.time()
    trigger = rig.trigger(REDIS_URL=going.url, DATABASE_URL=sqlite_url)
    await trigger.until_ready()
    async with steady_load(world, topics, seed=21, rate=300) as traffic:
        for _ in range(3):
            await asyncio.to_thread(going.stop)
            await eventually(lambda: _is_without_redis(trigger))
            await asyncio.to_thread(going.start)
            await eventually(trigger.is_ready, deadline=20)
    await topics.until_done()
    await trigger.stop()
    expected = Oracle(world, traffic.cases, begin).walk(await topics.read("detections"))
    assert_equal(expected.notifications, await topics.read("notifications"), repeats=False)
    assert_equal(expected.connector_calls, await topics.read("connector-calls"), repeats=False)


async def _is_without_redis(trigger: Command) -> bool:
    return (await trigger.checks()).get("redis") is False


@pytest.mark.timeout(120)
async def test_kafka_down_for_a_while(
    rig: Rig,
    own_kafka: KafkaServer,
    redis_url: str,
    sqlite_url: str,
    topic_prefix: str,
) -> None:
    topics = TopicSet(own_kafka.bootstrap_servers, topic_prefix, f"{topic_prefix}g.trigger")
    world = small_world()
    await world.save(sqlite_url)
    await topics.create()
    begin = time.time()
    trigger = rig.trigger(
        KAFKA_BOOTSTRAP_SERVERS=own_kafka.bootstrap_servers,
        REDIS_URL=redis_url,
        DATABASE_URL=sqlite_url,
    )
    await trigger.until_ready()
    traffic = Traffic(random.Random(4), [plan.triple for plan in world.beacons], devices=100)
    for _ in range(2):
        await topics.publish([traffic.detection(int(time.time() * 1000)) for _ in range(3000)])
        await asyncio.to_thread(own_kafka.kill)
        await asyncio.to_thread(own_kafka.start)
    await topics.publish([traffic.detection(int(time.time() * 1000)) for _ in range(3000)])
    await topics.until_done()
    assert trigger.process.poll() is None, trigger.output
    await trigger.stop()
    expected = Oracle(world, traffic.cases, begin).walk(await topics.read("detections"))
    assert_equal(expected.notifications, await topics.read("notifications"), repeats=True)
