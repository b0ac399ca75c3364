"""Redis, Kafka or SQL is down, hangs, or forgets: the trigger waits, and loses nothing.
With PROXIMITY_TEST_FULL=1 also a failover of Redis, and Redis by TLS."""

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from catalog.models import Campaign
from tests.servers.kafka.server import KafkaServer
from tests.servers.postgres import PostgresServer, create_database
from tests.servers.process import started
from tests.servers.proximity import Command, Rig
from tests.servers.redis import RedisServer
from tests.servers.redis_kinds import TlsRedisServer, cluster_of_three, sentinel_and_two
from tests.servers.schema import opened
from tests.servers.waiting import eventually
from tests.system.crew import settings_on
from tests.system.scene import Scene
from tests.system.topics import TopicSet
from tests.system.world import small_world

BUILT = "index built"
HEALED = "the index in Redis is not SQL's: rebuilding it"
DRAIN = 5.0
SLACK = 20.0  # on a busy machine; a shutdown that waits for the broker takes a minute


@pytest.fixture
async def on_own(on_own_redis: Rig, topics: TopicSet) -> Scene:
    return await Scene(on_own_redis, topics, small_world()).begin()


async def test_redis_down_for_a_while(on_own: Scene, own_redis: RedisServer) -> None:
    trigger = await on_own.rig.ready("trigger")
    async with on_own.load(rate=300):
        await asyncio.to_thread(own_redis.stop)
        await eventually(lambda: trigger.reports("redis"))
        await asyncio.to_thread(own_redis.start)
        await trigger.until_ready()
    expected = await on_own.assert_published(repeats=False)
    await trigger.stop()
    await on_own.assert_calls(expected, repeats=False)


async def test_kafka_down_for_a_while_and_then_frozen(
    own_kafka: KafkaServer, topic_prefix: str, redis_url: str, sqlite_url: str, tmp_path: Path
) -> None:
    bootstrap = own_kafka.bootstrap_servers
    stores = {"REDIS_URL": redis_url, "DATABASE_URL": sqlite_url}
    rig = Rig(tmp_path, settings_on(bootstrap, topic_prefix) | stores)
    topics = TopicSet(bootstrap, topic_prefix, f"{topic_prefix}g.")
    scene = await Scene(rig, topics, small_world()).begin()
    trigger = await rig.ready("trigger", DRAIN_TIMEOUT=str(DRAIN))
    await topics.publish(scene.detections(3000))
    before = len(trigger.output.splitlines())
    await asyncio.to_thread(own_kafka.kill)
    await eventually(lambda: trigger.reports("kafka"), what="readiness shows it")

    async def is_counted() -> bool:
        return (await trigger.metrics()).total("kafka_errors") > 0

    await eventually(is_counted, what="failed requests are counted")
    lines = trigger.output.splitlines()[before:]
    assert len(lines) <= 30, "\n".join(lines)
    await asyncio.to_thread(own_kafka.start)
    await topics.publish(scene.detections(3000))
    await scene.assert_published(repeats=True)
    # What is published while the broker freezes is in flight: the drain timeout holds.
    publishing = asyncio.create_task(topics.publish(scene.detections(10_000)))
    await trigger.until_decided(0)
    with own_kafka.frozen():
        begin = time.monotonic()
        trigger.send_signal(signal.SIGTERM)
        await trigger.ended()
        seconds = time.monotonic() - begin
    await publishing
    rig.close()
    assert seconds < DRAIN + SLACK, trigger.output


async def test_redis_forgets_everything(scene: Scene, redis_url: str) -> None:
    """The index comes back by itself, and no beacon becomes unknown."""
    trigger = await scene.rig.ready("trigger")
    async with scene.load(rate=400):
        for _ in range(2):
            built = trigger.output.count(BUILT)
            async with Redis.from_url(redis_url) as redis:
                await redis.flushall()
            await until_built(trigger, built + 1)
            await trigger.until_decided(100)
    await trigger.until_ready()
    await scene.assert_none_missing(trigger)
    await trigger.stop()


async def test_redis_falls_back_to_an_older_file(
    on_own: Scene, own_redis: RedisServer, tmp_path: Path
) -> None:
    """A campaign that was switched off does not fire again: the index is rebuilt."""
    scene, older = on_own, tmp_path / "older"
    trigger = await scene.rig.ready("trigger")
    switched = await a_campaign_that_fires(scene)
    await asyncio.to_thread(shutil.copytree, own_redis.directory, older)
    await switch_off(scene, switched)
    built = trigger.output.count(BUILT)
    async with scene.load(rate=200):
        await trigger.until_decided(300)
        await asyncio.to_thread(own_redis.kill)
        await asyncio.to_thread(shutil.rmtree, own_redis.directory)
        await asyncio.to_thread(shutil.copytree, older, own_redis.directory)
        await asyncio.to_thread(own_redis.start)
        await until_built(trigger, built + 1)
    await scene.topics.until_done()
    assert switched.name not in await scene.fires(scene.world.beacons[0])
    await trigger.stop()
    assert trigger.output.count(HEALED) == built + 1


async def until_built(trigger: Command, times: int) -> None:
    await eventually(lambda: trigger.output.count(BUILT) >= times, what="the index is built")


async def a_campaign_that_fires(scene: Scene) -> Campaign:
    """The first one of the first beacon."""
    campaign = scene.world.campaigns[0]
    assert campaign.name in await scene.fires(scene.world.beacons[0])
    return campaign


async def switch_off(scene: Scene, campaign: Campaign) -> None:
    """Switch the campaign off in SQL, and wait until it fires nothing."""
    url = scene.rig.settings["DATABASE_URL"]
    async with opened(url) as database, database.write.begin() as session:
        (await session.get_one(Campaign, campaign.id)).active = False

    async def is_off() -> bool:
        return campaign.name not in await scene.fires(scene.world.beacons[0])

    await eventually(is_off, what="the edit has come through")


@pytest.fixture
async def on_own_postgres(
    rig: Rig, topics: TopicSet, redis_url: str, own_postgres: PostgresServer
) -> Scene:
    url = create_database(own_postgres.admin_url)
    rig.settings |= {"REDIS_URL": redis_url, "DATABASE_URL": url}
    return await Scene(rig, topics, small_world()).begin()


async def test_sql_hangs(on_own_postgres: Scene, own_postgres: PostgresServer) -> None:
    """The trigger works on, starts from Redis alone, and gets edits once SQL is back."""
    scene, topics, rig = on_own_postgres, on_own_postgres.topics, on_own_postgres.rig
    trigger = await rig.ready("trigger")
    await topics.publish(scene.detections(500))
    with own_postgres.frozen():
        await topics.publish(scene.detections(500))
        await topics.until_done()
        await trigger.until_ready()
        await trigger.stop()
        trigger = await rig.ready("trigger")
        await topics.publish(scene.detections(500))
        await scene.assert_published(repeats=False)
        recorder = rig.role("recorder")
        await eventually(lambda: recorder.reports("sql"), what="it says so")
        await recorder.stop()
        recorder = rig.role("recorder")
    await recorder.until_ready()
    await switch_off(scene, await a_campaign_that_fires(scene))
    await trigger.stop()
    await recorder.stop()


async def test_while_redis_is_empty_and_sql_is_down_detections_wait(
    on_own_postgres: Scene, redis_url: str, own_postgres: PostgresServer
) -> None:
    scene = on_own_postgres
    trigger = await scene.rig.ready("trigger")
    async with scene.load(rate=200):
        await trigger.until_decided(200)
        await asyncio.to_thread(own_postgres.stop)
        async with Redis.from_url(redis_url) as redis:
            await redis.flushall()
        await eventually(lambda: trigger.reports("index_built"), what="not ready")
        await asyncio.to_thread(own_postgres.start)
        await trigger.until_ready()
    await scene.assert_none_missing(trigger)
    await trigger.stop()


full = pytest.mark.skipif("PROXIMITY_TEST_FULL" not in os.environ, reason="servers of their own")


@pytest.fixture(params=[sentinel_and_two, cluster_of_three])
def with_replica(request: pytest.FixtureRequest) -> Iterator[tuple[str, RedisServer]]:
    """A URL, and the primary to kill, whose replica is promoted."""
    with request.param() as found:
        yield found


@full
async def test_the_primary_of_redis_ends(
    rig: Rig, topics: TopicSet, sqlite_url: str, with_replica: tuple[str, RedisServer]
) -> None:
    url, primary = with_replica
    rig.settings |= {"REDIS_URL": url, "DATABASE_URL": sqlite_url}
    scene = await Scene(rig, topics, small_world()).begin()
    trigger = await rig.ready("trigger")

    async def is_unready() -> bool:
        return not await trigger.is_ready()

    async with scene.load(rate=200):
        await trigger.until_decided(300)
        await asyncio.to_thread(primary.kill)
        await eventually(is_unready, what="it is noticed")
        await trigger.until_ready()
        await trigger.until_decided(300)
    await scene.assert_none_missing(trigger)
    await trigger.stop()


@full
async def test_tls_a_client_certificate_and_a_user_of_its_own(
    rig: Rig, topics: TopicSet, topic_prefix: str, sqlite_url: str
) -> None:
    with started(TlsRedisServer) as server:
        with server.connect() as client:
            rights = [f"~{topic_prefix}*", "+@all", "-@admin", "-@dangerous"]
            client.execute_command("ACL", "SETUSER", "engine", "on", ">secret", *rights)
            client.execute_command("ACL", "SETUSER", "default", "off")
        url = server.url_of("engine:secret@")
        rig.settings |= {"REDIS_URL": url, "DATABASE_URL": sqlite_url}
        scene = await Scene(rig, topics, small_world()).begin()
        trigger = await rig.ready("trigger")
        async with scene.load(rate=200):
            await trigger.until_decided(300)
        await scene.assert_none_missing(trigger)
        await trigger.stop()
