"""A catalog, a Redis of the test's own, a reader of its index, and whole processes."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from catalog.database import Database, open_database
from catalog.redis_connection import RedisClient, connect_redis
from engine.process.metrics import Metrics
from tests.servers.redis import RedisServer
from tests.servers.schema import make_schema
from tests.system.index.reader import Reader
from tests.system.rig import Rig
from tests.system.topics import TopicSet


@pytest.fixture(params=["sqlite"])
async def database(request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    """SQLite; a test may choose another database."""
    url = str(request.getfixturevalue(f"{request.param}_url"))
    await make_schema(url)
    opened = open_database(url)
    yield opened
    await opened.close()


@pytest.fixture
async def redis(own_redis: RedisServer) -> AsyncIterator[RedisClient]:
    client = connect_redis(own_redis.url, timeout=2.0)
    yield client
    await client.aclose()


@pytest.fixture
async def reader(database: Database, redis: RedisClient) -> Reader:
    made = Reader(database, redis)
    await made.furnish()
    return made


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def topics(kafka_bootstrap: str, topic_prefix: str) -> TopicSet:
    return TopicSet(kafka_bootstrap, topic_prefix, f"{topic_prefix}g.trigger")


@pytest.fixture
def rig(kafka_bootstrap: str, topic_prefix: str, tmp_path: Path) -> Iterator[Rig]:
    made = Rig(
        tmp_path,
        {
            "KAFKA_BOOTSTRAP_SERVERS": kafka_bootstrap,
            "TOPIC_PREFIX": topic_prefix,
            "GROUP_PREFIX": f"{topic_prefix}g.",
            "REDIS_PREFIX": topic_prefix,
            "LOG_FORMAT": "json",
        },
    )
    yield made
    made.close()
