"""What the suites share: a client to each kind of Redis, metrics, quick settings of brokers."""

from collections.abc import AsyncIterator

import pytest

from catalog.redis_connection import RedisClient, connect_redis
from engine.process.metrics import Metrics


@pytest.fixture
async def redis(any_redis_url: str) -> AsyncIterator[RedisClient]:
    client = connect_redis(any_redis_url)
    yield client
    await client.aclose()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()
