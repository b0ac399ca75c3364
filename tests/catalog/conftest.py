"""A migrated catalog on each database, an empty index on a real Redis, and records to put in."""

from collections.abc import AsyncIterator

import pytest

from catalog.database import Database, open_database
from catalog.index.drain import IndexStore
from catalog.redis_connection import RedisClient, connect_redis
from tests.api.conftest import _cheap_passwords
from tests.catalog.records import Records
from tests.servers.schema import make_schema

__all__ = ["_cheap_passwords"]


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    await make_schema(database_url)
    opened = open_database(database_url)
    yield opened
    await opened.close()


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[RedisClient]:
    client = connect_redis(redis_url)
    yield client
    await client.aclose()


@pytest.fixture
def store(redis: RedisClient) -> IndexStore:
    return IndexStore(redis, prefix="test:")


@pytest.fixture
def records() -> Records:
    return Records()
