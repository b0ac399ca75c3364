"""Processes on real servers, with topics and prefixes of the test's own; they end with it."""

import pytest

from tests.servers.proximity import Rig
from tests.servers.redis import RedisServer
from tests.system.crew import settings_on
from tests.system.scene import Scene
from tests.system.topics import TopicSet
from tests.system.world import small_world


@pytest.fixture
def topics(kafka_bootstrap: str, topic_prefix: str) -> TopicSet:
    return TopicSet(kafka_bootstrap, topic_prefix, f"{topic_prefix}g.")


@pytest.fixture
def committed(kafka_bootstrap: str, topic_prefix: str) -> TopicSet:
    """The same, read with read_committed."""
    return TopicSet(kafka_bootstrap, topic_prefix, f"{topic_prefix}g.", committed=True)


@pytest.fixture
def rig(rig: Rig, kafka_bootstrap: str, topic_prefix: str) -> Rig:
    """Processes on the real Kafka; the test adds REDIS_URL and DATABASE_URL."""
    rig.settings |= settings_on(kafka_bootstrap, topic_prefix)
    return rig


@pytest.fixture
def stores(rig: Rig, redis_url: str, sqlite_url: str) -> Rig:
    """The rig with Redis and SQLite."""
    rig.settings |= {"REDIS_URL": redis_url, "DATABASE_URL": sqlite_url}
    return rig


@pytest.fixture
def on_own_redis(rig: Rig, own_redis: RedisServer, sqlite_url: str) -> Rig:
    """The rig with a Redis that the test may stop, and SQLite."""
    rig.settings |= {"REDIS_URL": own_redis.url, "DATABASE_URL": sqlite_url}
    return rig


@pytest.fixture
async def scene(stores: Rig, topics: TopicSet) -> Scene:
    """A small world in SQLite, and its topics."""
    return await Scene(stores, topics, small_world()).begin()
