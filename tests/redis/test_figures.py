"""Sums of companies' days, the detections of the last quarter of an hour, and the reports of
processes on their roles, on every kind of Redis."""

import asyncio
import time
from collections import Counter
from datetime import UTC, date, datetime
from typing import Any
from unittest.mock import AsyncMock

import pytest

from api.activity import role_state
from api.reports import RoleReport
from catalog.redis_connection import RedisClient
from engine.process.metrics import Metrics
from engine.redis import role_states as store_module
from engine.redis.figures import (
    KEPT_DAYS,
    MINUTES,
    MOST_FIELDS,
    BeaconMinute,
    CompanyDay,
    FigureStore,
    RecentDetectionStore,
)
from engine.redis.role_states import RoleStateStore
from engine.trigger.decision_counts import DecisionCounter
from rules.decision import refusal
from rules.model import DayFigures, Reason

DAY = date(2026, 11, 20)
NEXT = date(2026, 11, 21)
HELD = (7, Reason.THROTTLED)
FIELDS = {"r:too_far": 1, "r:throttled": 3, "c:7:throttled": 3}


@pytest.fixture
def store(redis: RedisClient) -> FigureStore:
    return FigureStore(redis=redis, prefix="contract:", deadline=10.0)


async def key_of(redis: RedisClient, pattern: str = "contract:*") -> Any:
    (key,) = [key async for key in redis.scan_iter(pattern)]
    return key


def sums(count: int = 1) -> dict[str, int]:
    return {field: count * each for field, each in FIELDS.items()}


def figures(count: int = 1) -> DayFigures:
    return DayFigures(
        reasons=Counter({Reason.TOO_FAR: count, Reason.THROTTLED: 3 * count}),
        campaigns=Counter({HELD: 3 * count}),
    )


async def test_sums_grow_and_nothing_is_lost(store: FigureStore):
    """Several processes write the same day."""
    assert await store.read(1, DAY, NEXT) == {}
    await asyncio.gather(*(store.add({CompanyDay(1, DAY): sums()}) for _ in range(20)))
    await store.add({CompanyDay(1, DAY): sums(4), CompanyDay(1, NEXT): sums()})
    assert await store.read(1, DAY, NEXT) == {DAY: figures(24), NEXT: figures()}
    assert await store.read(1, NEXT, NEXT) == {NEXT: figures()}


async def test_a_day_is_one_companys_and_is_kept_for_a_month(
    store: FigureStore, redis: RedisClient
):
    await store.add({CompanyDay(n, DAY): sums(n) for n in range(1, 301)})
    for company in (1, 2, 300):
        assert await store.read(company, DAY, DAY) == {DAY: figures(company)}
    assert await store.read(301, DAY, DAY) == {}
    kept = KEPT_DAYS * 24 * 3600
    assert kept - 60 < await redis.ttl(await key_of(redis, "contract:*{1}*")) <= kept


async def test_a_day_has_a_bounded_number_of_sums(store: FigureStore, redis: RedisClient):
    """However many campaigns a company has, and however many processes write."""
    await store.add({CompanyDay(1, DAY): sums()})
    for first in range(1, 10_000, 400):
        many = {f"c:{number}:ended": 1 for number in range(first, first + 400)}
        await store.add({CompanyDay(1, DAY): many})
    fields = await redis.hlen(await key_of(redis))
    assert MOST_FIELDS <= fields <= MOST_FIELDS + len(Reason)
    before = (await store.read(1, DAY, DAY))[DAY]
    # What is there grows; so do reasons, whether they are there or not.
    await store.add({CompanyDay(1, DAY): sums() | {"r:stale": 2}})
    after = (await store.read(1, DAY, DAY))[DAY]
    assert after.campaigns.keys() == before.campaigns.keys()
    assert after.campaigns[HELD] == before.campaigns[HELD] + 3
    assert after.reasons[Reason.STALE] == 2


async def test_fields_of_another_version_are_ignored(store: FigureStore, redis: RedisClient):
    await store.add({CompanyDay(1, DAY): sums()})
    odd: Any = dict.fromkeys((b"r:of_tomorrow", b"d:1", b"c:7", b"\xff"), 1)
    await redis.hset(await key_of(redis), mapping=odd | {b"r:stale": b"x"})
    assert await store.read(1, DAY, DAY) == {DAY: figures()}


# Decisions of a process until they are written


async def test_a_day_is_that_of_utc(store: FigureStore):
    now = datetime(2026, 11, 20, 23, 59, tzinfo=UTC).timestamp()
    counter = DecisionCounter(metrics=Metrics(), store=store, clock=lambda: now)
    counter.count([refusal(Reason.TOO_FAR, 1)] * 2)
    await counter.write()
    now += 60
    counter.count([refusal(Reason.STALE, 1)] * 3)
    for _ in range(2):  # what is written is written once
        await counter.write()
    found = await store.read(1, DAY, NEXT)
    assert (found[DAY].reasons, found[NEXT].reasons) == ({Reason.TOO_FAR: 2}, {Reason.STALE: 3})


async def test_sums_that_redis_refuses_are_dropped_and_counted(
    store: FigureStore, redis: RedisClient
):
    metrics, today = Metrics(), datetime.now(UTC).date()
    counter = DecisionCounter(metrics=metrics, store=store)
    await store.add({CompanyDay(3, today): sums()})
    key = await key_of(redis)
    await redis.delete(key)
    await redis.set(key, b"a text")
    counter.count([refusal(Reason.STALE, 3), refusal(Reason.TOO_FAR, 3)])
    await counter.write()
    for name, count in (("redis_errors", 1), ("figures_dropped", 2)):
        assert metrics.registry.get_sample_value(f"proximity_{name}_total") == count
    await redis.delete(key)
    counter.count([refusal(Reason.STALE, company) for company in range(1, 251)])
    await counter.write()
    for company in (1, 3, 250):
        assert (await store.read(company, today, today))[today].reasons == {Reason.STALE: 1}


async def test_a_quarter_of_an_hour_of_detections_is_added_up(redis: RedisClient) -> None:
    now = 1_795_200_030.0
    minute = int(now // 60)
    store = RecentDetectionStore(redis=redis, prefix="contract:", deadline=10.0)
    assert await store.read(7, now) == {}
    last = minute - MINUTES + 1
    await store.add({BeaconMinute(7, 1, minute): 2, BeaconMinute(7, 2, last): 3})
    await store.add({BeaconMinute(7, 1, minute - 1): 5, BeaconMinute(8, 9, minute): 1})
    assert await store.read(7, now) == {1: 7, 2: 3}
    assert await store.read(8, now) == {9: 1}
    assert await store.read(7, now + 60) == {1: 7}
    keys = [key async for key in redis.scan_iter(match="contract:recent:*")]
    assert len(keys) == 4
    for key in keys:
        assert 0 < await redis.ttl(key) <= 20 * 60


# The reports of processes on their roles, also after they stop reporting


def store_on(redis: RedisClient) -> RoleStateStore:
    return RoleStateStore(redis=redis, prefix="contract:", deadline=10.0)


async def test_each_process_has_its_say(redis: RedisClient) -> None:
    store = store_on(redis)
    assert await store.read() == []
    await store.write("a", "trigger", behind=0.5, waits_for=[])
    await store.write("b", "trigger", behind=None, waits_for=["kafka"])
    await store.write("a", "trigger", behind=12.0, waits_for=[])
    (key,) = [key async for key in redis.scan_iter("contract:roles:*")]
    await redis.hset(key, "trigger:newer", b"of another version")
    found = sorted(await store.read(), key=lambda each: each.waits_for)
    assert [(each.role, each.behind, each.waits_for) for each in found] == [
        ("trigger", 12.0, ()),
        ("trigger", None, ("kafka",)),
    ]
    assert all(0 <= each.age < 30 for each in found)


async def test_reports_are_kept_for_a_day(
    redis: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, now = store_on(redis), time.time()
    for instance, age in (("yesterday", 24 * 3600), ("before", 48 * 3600)):
        written = AsyncMock(return_value=now - age)
        monkeypatch.setattr(store_module, "shared_time", written)
        await store.write(instance, "recorder", behind=0.0, waits_for=[])
    monkeypatch.setattr(store_module, "shared_time", AsyncMock(return_value=now))
    assert [round(each.age) for each in await store.read()] == [24 * 3600]
    async for key in redis.scan_iter("contract:roles:*"):
        assert 0 < await redis.ttl(key) <= 48 * 3600


@pytest.mark.parametrize(
    ("reports", "state", "seconds"),
    [
        ([], "silent", None),
        ([(120.9, 0.0, ()), (4000, 0.0, ())], "silent", 120),
        ([(1, 0.2, ())], "up_to_date", None),
        ([(1, 0.2, ()), (2, 12.7, ()), (120, 900.0, ())], "behind", 12),
        ([(1, 0.2, ()), (2, None, ())], "starting", None),
        ([(1, 90.0, ("sql", "of tomorrow")), (2, None, ())], "waiting", None),
    ],
)
def test_the_worst_that_is_alive_counts(
    reports: list[tuple[float, float | None, tuple[str, ...]]], state: str, seconds: int | None
) -> None:
    found = role_state("recorder", [RoleReport("recorder", *each) for each in reports])
    waits_for = ["sql"] if state == "waiting" else []
    assert found.model_dump() == {
        "role": "recorder",
        "state": state,
        "seconds": seconds,
        "waits_for": waits_for,
    }
