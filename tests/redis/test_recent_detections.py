"""The detections of the last quarter of an hour."""

from catalog.redis_connection import RedisClient
from engine.redis.figures import MINUTES, BeaconMinute, RecentDetectionStore

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
