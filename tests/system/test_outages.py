"""Redis, Kafka or SQL is down, hangs, or forgets: the trigger waits, and loses nothing."""

import asyncio
import shutil
import signal
import time
from pathlib import Path

import pytest
from redis.asyncio import Redis

from catalog.database import open_database
from catalog.models import Campaign
from tests.servers.kafka.server import KafkaServer
from tests.servers.postgres import PostgresServer, create_database
from tests.servers.redis import RedisServer
from tests.servers.waiting import eventually
from tests.system.probe import Probe
from tests.system.rig import Command, Rig, environment_on
from tests.system.scene import Scene, assert_equal, until_decided
from tests.system.topics import TopicSet
from tests.system.world import small_world

HEALED = "the index in Redis is older than SQL: rebuilding it from SQL"
DRAIN = 5.0
SLACK = 4.0  # on a busy machine


async def reports(trigger: Command, server: str) -> bool:
    """Whether /readyz says that this server does not answer."""
    return (await trigger.checks()).get(server) is False


async def test_redis_down_for_a_while(
    on_own_redis: Rig, topics: TopicSet, own_redis: RedisServer
) -> None:
    scene = await Scene(on_own_redis, topics, small_world()).begin()
    trigger = await scene.trigger()
    async with scene.load(seed=21, rate=300):
        for _ in range(2):
            await asyncio.to_thread(own_redis.stop)
            await eventually(lambda: reports(trigger, "redis"))
            await asyncio.to_thread(own_redis.start)
            await trigger.until_ready()
    expected = await scene.assert_published(repeats=False)
    await trigger.stop()
    assert_equal(expected.connector_calls, await topics.read("connector-calls"), repeats=False)


async def test_kafka_down_for_a_while_and_then_frozen(
    own_kafka: KafkaServer, topic_prefix: str, redis_url: str, sqlite_url: str, tmp_path: Path
) -> None:
    bootstrap = own_kafka.bootstrap_servers
    stores = {"REDIS_URL": redis_url, "DATABASE_URL": sqlite_url}
    rig = Rig(tmp_path, environment_on(bootstrap, topic_prefix) | stores)
    topics = TopicSet(bootstrap, topic_prefix, f"{topic_prefix}g.trigger")
    scene = await Scene(rig, topics, small_world()).begin()
    trigger = await scene.trigger(DRAIN_TIMEOUT=str(DRAIN))
    await scene.topics.publish(scene.detections(3000))
    before = len(trigger.output.splitlines())
    await asyncio.to_thread(own_kafka.kill)
    await eventually(lambda: reports(trigger, "kafka"), what="readiness shows it")

    async def counted() -> bool:
        return (await trigger.metrics()).total("kafka_errors") > 0

    await eventually(counted, what="failed requests are counted")
    lines = trigger.output.splitlines()[before:]
    assert len(lines) <= 30, "\n".join(lines)
    await asyncio.to_thread(own_kafka.start)
    await scene.topics.publish(scene.detections(3000))
    await scene.assert_published(repeats=True)
    # What is published while the broker freezes is in flight: the drain timeout holds.
    publishing = asyncio.create_task(scene.topics.publish(scene.detections(10_000)))
    await until_decided(trigger, 0)
    with own_kafka.frozen():
        begin = time.monotonic()
        trigger.process.send_signal(signal.SIGTERM)
        await trigger.ended(DRAIN + 20)
        seconds = time.monotonic() - begin
    await publishing
    assert seconds < DRAIN + SLACK, trigger.output


async def test_redis_forgets_everything(scene: Scene, redis_url: str) -> None:
    """The index comes back by itself, and no beacon becomes unknown."""
    trigger = await scene.trigger()
    async with scene.load(seed=5, rate=400):
        for _ in range(3):
            async with Redis.from_url(redis_url) as redis:
                await redis.flushall()
            await until_decided(trigger, 300)
    await trigger.until_ready()
    await scene.assert_none_missing(trigger)
    await trigger.stop()
    assert trigger.output.count("index built") >= 3


async def test_redis_falls_back_to_an_older_file(
    on_own_redis: Rig, topics: TopicSet, own_redis: RedisServer, sqlite_url: str, tmp_path: Path
) -> None:
    """A campaign that was switched off does not fire again: the index is rebuilt."""
    scene = await Scene(on_own_redis, topics, small_world()).begin()
    trigger, probe = await scene.trigger(), Probe(topics)
    plan = scene.world.beacons[0]
    switched = plan.campaigns[0].record
    assert switched.name in await probe.fires(plan.triple)
    await asyncio.to_thread(shutil.copytree, own_redis.directory, tmp_path / "older")
    await switch_off(switched, sqlite_url)

    async def is_off() -> bool:
        return switched.name not in await probe.fires(plan.triple)

    await eventually(is_off)
    async with scene.load(seed=5, rate=200):
        await until_decided(trigger, 300)
        await asyncio.to_thread(own_redis.kill)
        await asyncio.to_thread(shutil.rmtree, own_redis.directory)
        await asyncio.to_thread(shutil.copytree, tmp_path / "older", own_redis.directory)
        await asyncio.to_thread(own_redis.start)
        await eventually(lambda: trigger.output.count("index built") == 2)
    await topics.until_done()
    assert await is_off()
    await trigger.stop()
    assert trigger.output.count(HEALED) == 1


async def switch_off(record: Campaign, url: str) -> None:
    database = open_database(url)
    async with database.write.begin() as session:
        (await session.get_one(Campaign, record.id)).active = False
    await database.close()


@pytest.fixture
async def on_own_postgres(
    rig: Rig, topics: TopicSet, redis_url: str, own_postgres: PostgresServer
) -> Scene:
    url = create_database(own_postgres.admin_url)
    rig.environment |= {"REDIS_URL": redis_url, "DATABASE_URL": url}
    return await Scene(rig, topics, small_world()).begin()


async def test_sql_hangs(on_own_postgres: Scene, own_postgres: PostgresServer) -> None:
    """The trigger works on, starts from Redis alone, and gets edits once SQL is back."""
    scene, topics, rig = on_own_postgres, on_own_postgres.topics, on_own_postgres.rig
    trigger = await scene.trigger()
    await topics.publish(scene.detections(500))
    with own_postgres.frozen():
        await topics.publish(scene.detections(500))
        await topics.until_done()
        assert await trigger.is_ready()
        await trigger.stop()
        trigger = await scene.trigger()
        await topics.publish(scene.detections(500))
        await scene.assert_published(repeats=False)
        recorder = rig.recorder()
        await eventually(lambda: reports(recorder, "sql"), what="it says so")
        await recorder.stop()
        recorder = rig.recorder()
    await recorder.until_ready()
    plan, probe = scene.world.beacons[0], Probe(topics)
    await switch_off(plan.campaigns[0].record, rig.environment["DATABASE_URL"])

    async def is_closed() -> bool:
        return plan.campaigns[0].record.name not in await probe.fires(plan.triple)

    await eventually(is_closed, what="the edit has come through")
    await trigger.stop()
    await recorder.stop()


async def test_while_redis_is_empty_and_sql_is_down_detections_wait(
    on_own_postgres: Scene, redis_url: str, own_postgres: PostgresServer
) -> None:
    scene = on_own_postgres
    trigger = await scene.trigger()
    async with scene.load(seed=6, rate=200):
        await until_decided(trigger, 200)
        await asyncio.to_thread(own_postgres.stop)
        async with Redis.from_url(redis_url) as redis:
            await redis.flushall()
        await eventually(lambda: reports(trigger, "index_built"), what="not ready")
        await asyncio.to_thread(own_postgres.start)
        await trigger.until_ready()
    await scene.assert_none_missing(trigger)
    await trigger.stop()
