"""Builds the objects that explain decisions and read stored ones. They need Redis alone."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from catalog.redis_connection import RedisClient, connect_redis
from engine.process.metrics import Metrics
from engine.process.settings import Settings
from engine.redis.claim_reader import ClaimReader
from engine.redis.decision_store import DecisionStore
from engine.trigger.beacon_cache import BeaconCache
from engine.trigger.beacon_index import BeaconIndex
from engine.trigger.explainer import Explainer


@asynccontextmanager
async def open_explainer(settings: Settings) -> AsyncIterator[Explainer]:
    """An explainer with a connection of its own. Raises RedisUrlError."""
    redis = connect_redis(settings.redis_url.get_secret_value(), timeout=settings.redis_timeout)
    try:
        yield build_explainer(settings, redis)
    finally:
        await redis.aclose()


def build_explainer(settings: Settings, redis: RedisClient) -> Explainer:
    """An explainer on an open connection."""
    index = BeaconIndex(
        redis=redis,
        prefix=settings.redis_prefix,
        cache=BeaconCache(most_beacons=1),
        deadline=settings.redis_timeout,
        metrics=Metrics(),
    )
    return Explainer(
        index=index, claims=build_claim_reader(settings, redis), max_age=settings.max_detection_age
    )


def build_claim_reader(settings: Settings, redis: RedisClient) -> ClaimReader:
    """A reader of claims on an open connection."""
    return ClaimReader(redis=redis, prefix=settings.redis_prefix, deadline=settings.redis_timeout)


def build_decision_store(settings: Settings, redis: RedisClient) -> DecisionStore:
    """The store of devices' last decisions on an open connection."""
    return DecisionStore(
        redis=redis,
        prefix=settings.redis_prefix,
        most=settings.recent_decisions,
        deadline=settings.redis_timeout,
    )
