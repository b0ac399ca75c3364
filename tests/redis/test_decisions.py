"""The last decisions of devices, and those that are shown to watchers, on every kind of Redis."""

import time

import pytest

from api.reports import LiveDecision, LiveOutcome
from catalog.redis_connection import RedisClient
from engine.redis import decisions
from engine.redis.decisions import (
    KEPT_SECONDS,
    DecisionStore,
    DeviceDecision,
    TailFilter,
    TailStore,
)
from engine.redis.devices import DeviceKey
from rules.model import StoredDecision, Zone

NOW = 1_795_200_000.0
PHONE = DeviceKey(1, "phone")


@pytest.fixture
def store(redis: RedisClient) -> DecisionStore:
    return DecisionStore(redis=redis, prefix="contract:", most=3, deadline=5.0)


@pytest.fixture
def tail(redis: RedisClient) -> TailStore:
    return TailStore(redis=redis, prefix="contract:", deadline=5.0)


def stored(number: int, device: DeviceKey = PHONE) -> DeviceDecision:
    at = NOW + number + 0.25
    campaigns = {"granted": [number], "outside_hours": [1, 2]}
    return DeviceDecision(device, StoredDecision(at, at + 1, 7, Zone.NEAR, "granted", campaigns))


def live(number: int) -> LiveDecision:
    outcomes = [LiveOutcome(number, "New books", "granted")]
    return LiveDecision(NOW, NOW + number, 7, "Library", "Desk", Zone.NEAR, "granted", outcomes, 0)


async def test_the_newest_of_a_device_first_for_a_day(
    store: DecisionStore, redis: RedisClient
) -> None:
    await store.keep([stored(1), stored(2)])
    (key,) = [key async for key in redis.scan_iter("contract:*")]
    await redis.rpush(key, b"\xc1", b"\x91\x01")  # of another version
    assert await store.read(PHONE) == [stored(2).decision, stored(1).decision]
    await store.keep([stored(3), stored(4)])
    assert await store.read(PHONE) == [stored(n).decision for n in (4, 3, 2)]
    assert KEPT_SECONDS - 60 < await redis.ttl(key) <= KEPT_SECONDS


async def test_a_device_is_one_companys(store: DecisionStore) -> None:
    others = [DeviceKey(2, "phone"), *(DeviceKey(1, f"\u00e9 {n}") for n in range(700))]
    await store.keep([stored(n, device) for n, device in enumerate(others)])
    assert await store.read(PHONE) == []
    for number in (0, 1, 350, 700):
        assert await store.read(others[number]) == [stored(number).decision]


async def test_all_pages_of_a_company_share_a_watcher(tail: TailStore):
    first = await tail.of_company(7, "0-0", NOW)
    assert first.decisions == []
    assert await tail.watchers() == [TailFilter("company-7", 7)]
    await tail.write({"company-7": [live(1), live(2)]})
    found = await tail.of_company(7, first.after, NOW)
    assert await tail.of_company(7, first.after, NOW) == found
    assert found.decisions == [live(1), live(2)]
    await tail.write({"company-7": [live(3)]})
    rest = await tail.of_company(7, found.after, NOW)
    assert rest.decisions == [live(3)]
    assert await tail.of_company(7, rest.after, NOW) == (rest.after, [])
    # Another page begins with the latest ones.
    begun = await tail.of_company(7, None, time.time())
    assert begun.decisions == [live(number) for number in (1, 2, 3)]


async def test_who_leaves_or_was_killed_is_forgotten(
    tail: TailStore, redis: RedisClient, monkeypatch: pytest.MonkeyPatch
):
    watchers = [TailFilter(f"w{number}", number) for number in range(3)]
    for each in watchers:
        await tail.watch(each)
    await tail.leave(watchers[1])
    with monkeypatch.context() as killed:
        killed.setattr(decisions, "_WATCH_SECONDS", -1)
        await tail.watch(watchers[2])
    await tail.watch(watchers[0])
    assert await tail.watchers() == watchers[:1]
    assert await redis.zcard("contract:watching") == 1
