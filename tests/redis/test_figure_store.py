"""Sums of companies' days on every kind of Redis."""

import asyncio
from collections import Counter
from datetime import date
from typing import Any

import pytest

from catalog.redis_connection import RedisClient
from engine.redis.figures import KEPT_DAYS, MOST_FIELDS, CompanyDay, FigureStore
from rules.model import CampaignReason, DayFigures, Reason

DAY = date(2026, 11, 20)
NEXT = date(2026, 11, 21)
HELD = CampaignReason(7, Reason.THROTTLED)


@pytest.fixture
def store(redis: RedisClient) -> FigureStore:
    return FigureStore(redis=redis, prefix="contract:", deadline=10.0)


FIELDS = {"d:0": 1, "d:23": 2, "n:9": 1, "r:too_far": 1, "r:throttled": 3, "c:7:throttled": 3}


def sums(count: int = 1) -> dict[str, int]:
    return {field: count * each for field, each in FIELDS.items()}


def figures(count: int = 1) -> DayFigures:
    return DayFigures(
        detections=Counter({0: count, 23: 2 * count}),
        notifications=Counter({9: count}),
        reasons=Counter({Reason.TOO_FAR: count, Reason.THROTTLED: 3 * count}),
        campaigns=Counter({HELD: 3 * count}),
    )


async def test_sums_grow(store: FigureStore):
    assert await store.read(1, DAY, NEXT) == {}
    assert await store.add({CompanyDay(1, DAY): sums()}) == []
    assert await store.add({CompanyDay(1, DAY): sums(4), CompanyDay(1, NEXT): sums()}) == []
    assert await store.read(1, DAY, NEXT) == {DAY: figures(5), NEXT: figures()}
    assert await store.read(1, NEXT, NEXT) == {NEXT: figures()}


async def test_concurrent_additions_lose_nothing(store: FigureStore):
    """Several processes write the same day."""
    await asyncio.gather(*(store.add({CompanyDay(1, DAY): sums()}) for _ in range(20)))
    assert await store.read(1, DAY, DAY) == {DAY: figures(20)}


async def test_a_day_is_one_companys_and_is_kept_for_a_month(
    store: FigureStore, redis: RedisClient
):
    assert await store.add({CompanyDay(n, DAY): sums(n) for n in range(1, 301)}) == []
    for company in (1, 2, 300):
        assert await store.read(company, DAY, DAY) == {DAY: figures(company)}
    assert await store.read(301, DAY, DAY) == {}
    (key,) = [key async for key in redis.scan_iter("contract:*{1}*")]
    kept = KEPT_DAYS * 24 * 3600
    assert kept - 60 < await redis.ttl(key) <= kept


async def test_a_day_has_a_bounded_number_of_sums(store: FigureStore, redis: RedisClient):
    """However many campaigns a company has, and however many processes write."""
    await store.add({CompanyDay(1, DAY): sums()})
    for first in range(1, 10_000, 400):
        many = {f"c:{number}:ended": 1 for number in range(first, first + 400)}
        await store.add({CompanyDay(1, DAY): {f"d:{first % 24}": 1} | many})
    (key,) = [key async for key in redis.scan_iter("contract:*")]
    every_hour_and_reason = 24 * 2 + len(Reason)
    assert MOST_FIELDS <= await redis.hlen(key) <= MOST_FIELDS + every_hour_and_reason
    before = (await store.read(1, DAY, DAY))[DAY]
    # What is there grows; so do hours and reasons, whether they are there or not.
    await store.add({CompanyDay(1, DAY): sums() | {"r:stale": 2}})
    after = (await store.read(1, DAY, DAY))[DAY]
    assert after.campaigns.keys() == before.campaigns.keys()
    assert after.campaigns[HELD] == before.campaigns[HELD] + 3
    assert after.reasons[Reason.STALE] == 2


async def test_fields_of_another_version_are_ignored(store: FigureStore, redis: RedisClient):
    await store.add({CompanyDay(1, DAY): sums()})
    (key,) = [key async for key in redis.scan_iter("contract:*")]
    odd: Any = dict.fromkeys((b"r:of_tomorrow", b"d:24", b"d:x", b"c:7", b"\xff"), 1)
    await redis.hset(key, mapping=odd | {b"n:1": b"x"})
    assert await store.read(1, DAY, DAY) == {DAY: figures()}


async def test_refused_days_are_returned(store: FigureStore, redis: RedisClient):
    await store.add({CompanyDay(1, DAY): sums()})
    (key,) = [key async for key in redis.scan_iter("contract:*")]
    await redis.delete(key)
    await redis.set(key, b"a text")
    days = {CompanyDay(1, DAY): sums(), CompanyDay(2, DAY): sums()}
    assert await store.add(days) == [CompanyDay(1, DAY)]
    assert await store.read(2, DAY, DAY) == {DAY: figures()}
