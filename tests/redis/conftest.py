"""Clients for each kind of Redis, metrics, and an index."""

from collections.abc import AsyncIterator

import pytest

from catalog.redis_connection import RedisClient, connect_redis
from engine.process.metrics import Metrics
from engine.redis.claims import Claims
from engine.trigger.place_cache import PlaceCache
from engine.trigger.place_index import PlaceIndex
from tests.redis.claim_requests import PREFIX, claims_on
from tests.redis.index_writer import Writer, beacon_entry, campaign_entry


@pytest.fixture
async def redis(any_redis_url: str) -> AsyncIterator[RedisClient]:
    async with connect_redis(any_redis_url) as client:
        yield client


@pytest.fixture
def claims(redis: RedisClient, metrics: Metrics) -> Claims:
    return claims_on(redis, metrics)


@pytest.fixture
def writer(redis: RedisClient) -> Writer:
    return Writer(redis)


@pytest.fixture
def index(redis: RedisClient, metrics: Metrics) -> PlaceIndex:
    return PlaceIndex(
        redis=redis, prefix=PREFIX, cache=PlaceCache(1000), deadline=5.0, metrics=metrics
    )


@pytest.fixture
async def built(writer: Writer, index: PlaceIndex) -> Writer:
    """An index with one beacon and one campaign, with its marker already read."""
    writer.fields |= beacon_entry([7]) | campaign_entry(7)
    await writer.rebuild()
    index.built.set()
    return writer
