"""An empty index on a real Redis, and records to put in."""

from collections.abc import AsyncIterator

import pytest

from catalog.index.drain import IndexStore
from catalog.redis_connection import RedisClient, connect_redis
from tests.api.conftest import _cheap_passwords
from tests.catalog.records import Records

__all__ = ["_cheap_passwords"]


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[RedisClient]:
    async with connect_redis(redis_url) as client:
        yield client


@pytest.fixture
def store(redis: RedisClient) -> IndexStore:
    return IndexStore(redis, prefix="test:")


@pytest.fixture
def records() -> Records:
    return Records()
