"""Three brokers: one is killed under load, two are not enough.

With PROXIMITY_TEST_FULL=1."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from tests.servers.handles import KAFKA
from tests.servers.kafka.cluster import KafkaCluster, kafka_cluster
from tests.servers.missing import skipping
from tests.servers.waiting import eventually
from tests.system.comparison import assert_equal
from tests.system.load import steady_load
from tests.system.oracle import Oracle
from tests.system.rig import Command, Rig
from tests.system.topics import TopicSet
from tests.system.traffic import Traffic
from tests.system.world import World, small_world

pytestmark = [
    pytest.mark.skipif("PROXIMITY_TEST_FULL" not in os.environ, reason="three brokers of its own"),
    pytest.mark.timeout(400),
]
RATE = 100


@pytest.fixture(scope="module")
def brokers() -> Iterator[KafkaCluster]:
    with skipping("Apache Kafka", instead=KAFKA), kafka_cluster() as cluster:
        yield cluster


@pytest.fixture
async def scene(
    brokers: KafkaCluster, redis_url: str, sqlite_url: str, topic_prefix: str, tmp_path: Path
) -> AsyncIterator["Scene"]:
    for node in brokers.nodes:
        if not node.running:
            await asyncio.to_thread(node.start)
    world = small_world()
    await world.save(sqlite_url)
    rig = Rig(
        tmp_path,
        {
            "KAFKA_BOOTSTRAP_SERVERS": brokers.bootstrap_servers,
            "TOPIC_PREFIX": topic_prefix,
            "GROUP_PREFIX": f"{topic_prefix}g.",
            "REDIS_PREFIX": topic_prefix,
            "REDIS_URL": redis_url,
            "DATABASE_URL": sqlite_url,
            "LOG_FORMAT": "json",
        },
    )
    topics = TopicSet(brokers.bootstrap_servers, topic_prefix, f"{topic_prefix}g.trigger")
    yield Scene(brokers, world, topics, rig)
    rig.close()


class Scene:
    """A trigger on the three brokers, which has created its topics."""

    def __init__(self, brokers: KafkaCluster, world: World, topics: TopicSet, rig: Rig) -> None:
        self.brokers = brokers
        self.topics = topics
        self._world = world
        self._rig = rig

    @asynccontextmanager
    async def under_load(self, seed: int) -> AsyncIterator[Command]:
        """At the end every expected notification is published."""
        begin = time.time()
        trigger = self._rig.trigger(TOPIC_REPLICATION="3")
        await trigger.until_ready()
        load = steady_load(self._world, self.topics, seed=seed, rate=RATE, malformed=0.0)
        async with load as traffic:
            await moved(trigger)
            yield trigger
            await moved(trigger)
        await self._compare(traffic, begin)
        await trigger.stop()

    async def _compare(self, traffic: Traffic, begin: float) -> None:
        await self.topics.until_done(120)
        expected = Oracle(self._world, traffic.cases, begin).walk(
            await self.topics.read("detections")
        )
        assert_equal(expected.notifications, await self.topics.read("notifications"), repeats=True)


async def moved(trigger: Command) -> None:
    """Wait until further detections are decided."""
    before = (await trigger.metrics()).total("notifications")

    async def has_moved() -> bool:
        return (await trigger.metrics()).total("notifications") > before + RATE

    await eventually(has_moved, deadline=120, what="notifications leave")


async def test_one_is_killed(scene: Scene) -> None:
    async with scene.under_load(seed=31) as trigger:
        topic = scene.topics.name("notifications")
        found = scene.brokers.replicas(topic)
        assert {replicas for _, replicas, _ in found} == {3}  # as TOPIC_REPLICATION says
        node = scene.brokers.nodes[found[0][0] - 1]
        killed = time.monotonic()
        await asyncio.to_thread(node.kill)
        await moved(trigger)
        print(f"notifications leave {time.monotonic() - killed:.1f} s after a broker was killed")
        await asyncio.to_thread(node.start)
        await asyncio.to_thread(scene.brokers.until_in_sync, topic)


async def test_without_enough_replicas_nothing_is_acknowledged(scene: Scene) -> None:
    """A topic that wants all three: what is granted meanwhile waits, and leaves when they are
    back."""
    async with scene.under_load(seed=33) as trigger:
        topic = scene.topics.name("notifications")
        await wanting(scene.brokers, topic, in_sync=3)
        node = scene.brokers.nodes[0]
        await asyncio.to_thread(node.kill)

        async def is_refused() -> bool:
            return (await trigger.metrics()).total("kafka_errors") > 0

        await eventually(is_refused, deadline=120, what="the brokers refuse")
        await eventually(lambda: is_stalled(trigger), deadline=60, what="nothing is acknowledged")
        await asyncio.to_thread(node.start)
        await asyncio.to_thread(scene.brokers.until_in_sync, topic)


async def wanting(brokers: KafkaCluster, topic: str, *, in_sync: int) -> None:
    """Set min.insync.replicas of this topic."""
    admin = AIOKafkaAdminClient(bootstrap_servers=brokers.bootstrap_servers)
    await admin.start()
    try:
        configs = {"min.insync.replicas": str(in_sync)}
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs)])
    finally:
        await admin.close()


async def is_stalled(trigger: Command) -> bool:
    """The metric counts acknowledged messages."""
    before = (await trigger.metrics()).total("notifications")
    await asyncio.sleep(2.0)  # twenty times what a notification takes
    return (await trigger.metrics()).total("notifications") == before
