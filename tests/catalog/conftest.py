"""A migrated catalog on each database, an empty index on a real Redis, and records to put in."""

from collections.abc import AsyncIterator

import pytest
from argon2 import PasswordHasher
from argon2.profiles import CHEAPEST

from catalog.database import Database, open_database
from catalog.index.drain import IndexStore
from catalog.redis_connection import RedisClient, connect_redis
from tests.catalog.records import Records
from tests.servers.schema import make_schema


@pytest.fixture(autouse=True)
def _cheap_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """A password costs 100 ms and 64 MB on purpose; these tests are about everything else."""
    monkeypatch.setattr("catalog.accounts._hasher", PasswordHasher.from_parameters(CHEAPEST))


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
