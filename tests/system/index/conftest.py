"""A catalog in SQLite, a Redis of the test's own, and a reader of its index."""

from collections.abc import AsyncIterator

import pytest

from catalog.database import open_database
from catalog.redis_connection import RedisClient, connect_redis
from tests.servers.redis import RedisServer
from tests.servers.schema import make_schema
from tests.system.index.reader import Reader


@pytest.fixture
async def redis(own_redis: RedisServer) -> AsyncIterator[RedisClient]:
    client = connect_redis(own_redis.url, timeout=30.0)
    yield client
    await client.aclose()


@pytest.fixture
async def reader(sqlite_url: str, redis: RedisClient) -> AsyncIterator[Reader]:
    await make_schema(sqlite_url)
    database = open_database(sqlite_url)
    made = Reader(database, redis)
    await made.furnish()
    yield made
    await database.close()
