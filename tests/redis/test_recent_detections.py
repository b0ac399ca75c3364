"""The detections of the last quarter of an hour, also while Redis is down."""

import asyncio
from contextlib import suppress

from catalog.redis_connection import RedisClient, connect_redis
from engine.process.metrics import Metrics
from engine.recorder.retention import RecentCounts
from engine.redis.figures import MINUTES, BeaconMinute, RecentDetectionStore
from tests.servers.waiting import eventually

NOW = 1_795_200_030.0
MINUTE = int(NOW // 60)


def store_on(redis: RedisClient) -> RecentDetectionStore:
    return RecentDetectionStore(redis=redis, prefix="contract:", deadline=10.0)


async def test_a_quarter_of_an_hour_is_added_up(redis: RedisClient) -> None:
    store = store_on(redis)
    assert await store.read(7, NOW) == {}
    last = MINUTE - MINUTES + 1
    await store.add({BeaconMinute(7, 1, MINUTE): 2, BeaconMinute(7, 2, last): 3})
    await store.add({BeaconMinute(7, 1, MINUTE - 1): 5, BeaconMinute(8, 9, MINUTE): 1})
    assert await store.read(7, NOW) == {1: 7, 2: 3}
    assert await store.read(8, NOW) == {9: 1}
    assert await store.read(7, NOW + 60) == {1: 7}
    keys = [key async for key in redis.scan_iter(match="contract:recent:*")]
    assert len(keys) == 4
    for key in keys:
        assert 0 < await redis.ttl(key) <= 20 * 60


async def test_counts_are_written_beside_the_batches(redis: RedisClient, metrics: Metrics) -> None:
    store = store_on(redis)
    counts = RecentCounts(store=store, metrics=metrics, pause=0.01)
    running = asyncio.create_task(counts.run())
    for _ in range(3):
        counts.note({BeaconMinute(7, 1, MINUTE): 2})

    async def arrived() -> bool:
        return await store.read(7, NOW) == {1: 6}

    await eventually(arrived, deadline=30)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def test_recent_counts_survive_an_outage_of_redis(metrics: Metrics) -> None:
    down = connect_redis("redis://127.0.0.1:9/0")
    counts = RecentCounts(store=store_on(down), metrics=metrics, pause=0.01)
    counts.note({BeaconMinute(7, 1, MINUTE): 1})
    running = asyncio.create_task(counts.run())

    async def failed() -> bool:
        return (metrics.registry.get_sample_value("proximity_redis_errors_total") or 0) > 0

    await eventually(failed, deadline=30)
    assert not running.done()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await down.aclose()
