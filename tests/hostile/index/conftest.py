"""A catalog on each database, a Redis of the test's own, and a reader of its index."""

from collections.abc import AsyncIterator

import pytest

from catalog.database import Database, open_database
from catalog.migrate import migrate
from catalog.redis_connection import RedisClient, connect_redis
from engine.metrics import Metrics
from tests.hostile.index.reader import Reader
from tests.servers.redis import RedisServer


@pytest.fixture
async def database(sqlite_url: str) -> AsyncIterator[Database]:
    await migrate(sqlite_url)
    opened = open_database(sqlite_url)
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
