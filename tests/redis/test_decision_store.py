"""The last decisions of devices on every kind of Redis."""

import pytest

from catalog.redis_connection import RedisClient
from engine.redis.decisions import KEPT_SECONDS, DecisionStore, DeviceDecision
from engine.redis.devices import DeviceKey
from rules.model import StoredDecision, Zone

PHONE = DeviceKey(1, "phone")


@pytest.fixture
def store(redis: RedisClient) -> DecisionStore:
    return DecisionStore(redis=redis, prefix="contract:", most=3, deadline=5.0)


def decision(number: int, device: DeviceKey = PHONE) -> DeviceDecision:
    at = 1_795_200_000.25 + number
    campaigns = {"granted": [number], "outside_hours": [1, 2]}
    return DeviceDecision(device, StoredDecision(at, at + 1, 7, Zone.NEAR, "granted", campaigns))


async def test_the_newest_first_and_no_more_than_that(store: DecisionStore) -> None:
    await store.keep([decision(1), decision(2)])
    assert await store.read(PHONE) == [decision(2).decision, decision(1).decision]
    await store.keep([decision(3), decision(4)])
    assert await store.read(PHONE) == [decision(n).decision for n in (4, 3, 2)]


async def test_a_device_is_one_companys(store: DecisionStore) -> None:
    others = [DeviceKey(2, "phone"), *(DeviceKey(1, f"\u00e9 {n}") for n in range(700))]
    await store.keep([decision(n, device) for n, device in enumerate(others)])
    assert await store.read(PHONE) == []
    for number in (0, 1, 350, 700):
        assert await store.read(others[number]) == [decision(number).decision]


async def test_they_are_kept_for_a_day(store: DecisionStore, redis: RedisClient) -> None:
    await store.keep([decision(1)])
    (key,) = [key async for key in redis.scan_iter("contract:*")]
    assert KEPT_SECONDS - 60 < await redis.ttl(key) <= KEPT_SECONDS


async def test_entries_of_another_version_are_skipped(
    store: DecisionStore, redis: RedisClient
) -> None:
    await store.keep([decision(1)])
    (key,) = [key async for key in redis.scan_iter("contract:*")]
    await redis.lpush(key, b"\xc1", b"\x91\x01")
    assert await store.read(PHONE) == [decision(1).decision]
