"""The finished calls that Redis stores, on every kind of Redis."""

import pytest
from aiokafka import TopicPartition

from catalog.redis_connection import RedisClient, connect_redis
from engine.connector.finished_calls import FinishedCallStore, PartitionProgress
from engine.process.metrics import Metrics

PLACE = TopicPartition("calls", 3)


@pytest.fixture
def finished(redis: RedisClient, metrics: Metrics) -> FinishedCallStore:
    return FinishedCallStore(
        redis=redis, prefix="contract:", life=600.0, deadline=5.0, metrics=metrics
    )


async def test_stored_progress_is_loaded(finished: FinishedCallStore) -> None:
    assert await finished.load(PLACE) == {}
    other = TopicPartition("calls", 4)
    await finished.save(
        {PLACE: PartitionProgress({12: "a", 10: "b"}), other: PartitionProgress({10: "c"})}
    )
    await finished.save({PLACE: PartitionProgress({11: "d:e"})})
    assert await finished.load(PLACE) == {10: "b", 11: "d:e", 12: "a"}
    assert await finished.load(other) == {10: "c"}


async def test_committed_offsets_are_removed(finished: FinishedCallStore) -> None:
    await finished.save({PLACE: PartitionProgress(dict.fromkeys(range(100), "x"))})
    await finished.save({PLACE: PartitionProgress({200: "y"}, done=97)})
    assert await finished.load(PLACE) == {97: "x", 98: "x", 99: "x", 200: "y"}


async def test_it_does_not_outlive_its_use(finished: FinishedCallStore, redis: RedisClient) -> None:
    await finished.save({PLACE: PartitionProgress({1: "x"})})
    (key,) = [key async for key in redis.scan_iter("contract:*")]
    assert 590_000 < await redis.pttl(key) <= 600_000


async def test_without_redis_nothing_is_remembered_and_nothing_fails(metrics: Metrics) -> None:
    redis = connect_redis("redis://127.0.0.1:1", timeout=0.2)
    finished = FinishedCallStore(
        redis=redis, prefix="contract:", life=600.0, deadline=2.0, metrics=metrics
    )
    assert await finished.load(PLACE) == {}
    await finished.save({PLACE: PartitionProgress({1: "x"})})
    await redis.aclose()
    assert metrics.registry.get_sample_value("proximity_redis_errors_total") == 1
