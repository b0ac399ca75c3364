"""Alerts fire on a real Prometheus when their cause occurs, and end when it is repaired.

The rules are the product's, with every duration a twelfth. With PROXIMITY_TEST_FULL=1.
"""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from deploy.grafana.__main__ import DASHBOARDS
from deploy.grafana.shared import INTERVAL
from tests.acceptance.load import steady_load
from tests.acceptance.rig import Command, Rig
from tests.acceptance.topics import TopicSet
from tests.acceptance.traffic import Message
from tests.acceptance.world import World, small_world
from tests.servers.kafka.server import KafkaServer
from tests.servers.missing import skipping
from tests.servers.postgres import PostgresServer, create_database
from tests.servers.process import started
from tests.servers.prometheus import PrometheusServer
from tests.servers.redis import RedisServer
from tests.servers.waiting import eventually
from tests.unit.deploy.known_metrics import RULES

pytestmark = [
    pytest.mark.skipif("PROXIMITY_TEST_FULL" not in os.environ, reason="a minute and more each"),
    pytest.mark.timeout(1200),
]
FASTER = 12
WAIT = 240.0


@contextmanager
def watching(*commands: Command) -> Iterator[PrometheusServer]:
    targets = [f"127.0.0.1:{command.port}" for command in commands]

    def make(directory: Path, port: int) -> PrometheusServer:
        return PrometheusServer(directory, port, targets=targets, rules=RULES, faster=FASTER)

    with skipping("Prometheus", instead="PATH"), started(make) as server:
        yield server


async def until_firing(server: PrometheusServer, *names: str) -> None:
    """Wait for the alerts, and print how long it took."""
    begin = time.monotonic()
    try:
        await eventually(lambda: server.firing() >= set(names), deadline=WAIT)
    except AssertionError:
        raise AssertionError(f"{names} do not all fire; these do: {server.firing()}") from None
    print(f"{', '.join(names)}: {time.monotonic() - begin:.0f} s, a twelfth of the real time")


async def until_silent(server: PrometheusServer) -> None:
    """Wait until none fires any more."""
    await eventually(lambda: not server.firing(), deadline=WAIT, what="no alert fires")


async def until_over(server: PrometheusServer, *names: str) -> None:
    """Wait until none of these fires any more."""
    await eventually(lambda: not server.firing() & set(names), deadline=WAIT, what=f"no {names}")


@asynccontextmanager
async def running(
    rig: Rig, topics: TopicSet, redis: str, database: str, **settings: str
) -> AsyncIterator[tuple[World, Command, Command]]:
    """A trigger and a recorder that are ready."""
    world = small_world()
    await world.save(database)
    await topics.create()
    of_all = {"REDIS_URL": redis, "DATABASE_URL": database, **settings}
    trigger, recorder = rig.trigger(**of_all), rig.recorder(**of_all)
    await trigger.until_ready()
    await recorder.until_ready()
    yield world, trigger, recorder
    await trigger.stop()
    await recorder.stop()


async def test_redis_is_stopped_fills_and_may_evict(
    rig: Rig, topics: TopicSet, own_redis: RedisServer, sqlite_url: str
) -> None:
    async with running(rig, topics, own_redis.url, sqlite_url) as (world, trigger, recorder):
        with watching(trigger, recorder) as prometheus:
            async with steady_load(world, topics, seed=3, rate=200, malformed=0):
                await _moved(trigger)
                await until_silent(prometheus)
                await asyncio.to_thread(own_redis.stop)
                await until_firing(prometheus, "ProximityRedisAway", "ProximityRoleStuck")
                await asyncio.to_thread(own_redis.start)
                await until_silent(prometheus)
            with own_redis.connect() as client:
                used = int(client.info("memory")["used_memory"])
                client.config_set("maxmemory", int(used * 1.1))
                client.config_set("maxmemory-policy", "allkeys-lru")
                await until_firing(prometheus, "ProximityRedisNearlyFull", "ProximityRedisEvicts")
                client.config_set("maxmemory-policy", "noeviction")
                client.config_set("maxmemory", 0)
            # The load has ended by now, all at once.
            await until_firing(prometheus, "ProximityDetectionsStopped")
            await until_over(prometheus, "ProximityRedisNearlyFull", "ProximityRedisEvicts")


async def test_sql_is_stopped(
    rig: Rig, topics: TopicSet, redis_url: str, own_postgres: PostgresServer
) -> None:
    url = create_database(own_postgres.admin_url)
    async with running(rig, topics, redis_url, url) as (_, trigger, recorder):
        with watching(trigger, recorder) as prometheus:
            await until_silent(prometheus)
            await asyncio.to_thread(own_postgres.stop)
            await until_firing(prometheus, "ProximitySqlAway")
            await asyncio.to_thread(own_postgres.start)
            await until_silent(prometheus)


async def test_kafka_is_stopped_and_a_process_is_killed(
    rig: Rig, own_kafka: KafkaServer, topic_prefix: str, redis_url: str, sqlite_url: str
) -> None:
    place = own_kafka.bootstrap_servers
    topics = TopicSet(place, topic_prefix, f"{topic_prefix}g.trigger")
    settings = {"KAFKA_BOOTSTRAP_SERVERS": place}
    async with running(rig, topics, redis_url, sqlite_url, **settings) as (_, trigger, recorder):
        other = rig.trigger(REDIS_URL=redis_url, DATABASE_URL=sqlite_url, **settings)
        await other.until_ready()
        with watching(trigger, recorder, other) as prometheus:
            await until_silent(prometheus)
            await asyncio.to_thread(own_kafka.stop)
            await until_firing(prometheus, "ProximityKafkaAway")
            await asyncio.to_thread(own_kafka.start)
            await until_silent(prometheus)
            other.kill()
            await until_firing(prometheus, "ProximityProcessDown")
            assert "ProximityAway" not in prometheus.firing()


async def test_detections_that_lead_to_nothing(
    rig: Rig, topics: TopicSet, redis_url: str, sqlite_url: str
) -> None:
    async with running(rig, topics, redis_url, sqlite_url) as (world, trigger, recorder):
        with watching(trigger, recorder) as prometheus:
            async with steady_load(world, topics, seed=4, rate=50, malformed=0):
                await _moved(trigger)
                await until_silent(prometheus)
                await eventually(
                    lambda: not _unanswered(prometheus), deadline=WAIT, what="every panel has data"
                )
            await topics.until_done()
            bad = [Message(0, b"a broken sender", b"{not json") for _ in range(300)]
            await topics.publish(bad)
            await until_firing(prometheus, "ProximityDeadLettersRising")
            async with _of_unknown_beacons(topics):
                await until_firing(prometheus, "ProximityOneReason")


def _unanswered(prometheus: PrometheusServer) -> set[str]:
    """Every query of a dashboard can be evaluated (else OSError); these have no answer."""
    empty = set()
    for dashboard in DASHBOARDS:
        for query in dashboard.queries():
            if not prometheus.query(query.expression.replace(INTERVAL, "20s")):
                empty.add(query.expression)
    # No interface, no calls, nothing dead, nothing skipped: everything else has been seen.
    unseen = ("api_", "connector", "dead_letters", "skipped", "ALERTS")
    return {each for each in empty if not any(word in each for word in unseen)}


@asynccontextmanager
async def _of_unknown_beacons(topics: TopicSet) -> AsyncIterator[None]:
    body = {"uuid": "0" * 31 + "1", "major": 1, "minor": 1, "proximity": "near"}
    value = json.dumps(body | {"device": {"udid": "lost"}}).encode()
    enough = asyncio.Event()

    async def publish() -> None:
        while not enough.is_set():
            await topics.publish([Message(0, b"lost", value) for _ in range(1000)])
            await asyncio.sleep(0.5)

    task = asyncio.create_task(publish())
    try:
        yield
    finally:
        enough.set()
        await task


async def _moved(trigger: Command) -> None:
    async def has_moved() -> bool:
        return (await trigger.metrics()).total("notifications") > 5

    await eventually(has_moved, deadline=60, what="notifications leave")
