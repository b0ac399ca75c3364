"""The reports of processes on their roles, also after they stop reporting."""

import time
from unittest.mock import AsyncMock

import pytest

from api.activity import role_state
from api.reports import RoleReport
from catalog.redis_connection import RedisClient
from engine.redis import role_states as store_module
from engine.redis.role_states import RoleStateStore


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
