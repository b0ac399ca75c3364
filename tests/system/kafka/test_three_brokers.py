"""Three brokers, one of which is killed under load. With PROXIMITY_TEST_FULL=1."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.kafka.cluster import KafkaCluster, kafka_cluster
from tests.servers.missing import KAFKA, skipping
from tests.system.rig import Rig, environment_on
from tests.system.scene import Scene, until_decided
from tests.system.topics import TopicSet
from tests.system.world import small_world

pytestmark = [
    pytest.mark.skipif("PROXIMITY_TEST_FULL" not in os.environ, reason="three brokers of its own"),
]


@pytest.fixture
def brokers() -> Iterator[KafkaCluster]:
    with skipping("Apache Kafka", instead=KAFKA), kafka_cluster() as cluster:
        yield cluster


async def test_one_is_killed(
    brokers: KafkaCluster, redis_url: str, sqlite_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    bootstrap = brokers.bootstrap_servers
    stores = {"REDIS_URL": redis_url, "DATABASE_URL": sqlite_url, "TOPIC_REPLICATION": "3"}
    rig = Rig(tmp_path, environment_on(bootstrap, topic_prefix) | stores)
    topics = TopicSet(bootstrap, topic_prefix, f"{topic_prefix}g.trigger")
    scene = Scene(rig, topics, small_world())
    await scene.world.save(sqlite_url)
    trigger = await scene.trigger()  # it has created the topics
    async with scene.load(seed=31, rate=100, malformed=0.0):
        await until_decided(trigger, 100)
        topic = topics.name("notifications")
        found = brokers.replicas(topic)
        assert {replicas for _, replicas, _ in found} == {3}
        node = brokers.nodes[found[0][0] - 1]
        await asyncio.to_thread(node.kill)
        await until_decided(trigger, 100)
        await asyncio.to_thread(node.start)
        await asyncio.to_thread(brokers.until_in_sync, topic)
    await scene.assert_published(repeats=True)
    await trigger.stop()
    rig.close()
