"""Who watches decisions, and what they are sent, on every kind of Redis."""

import time

import pytest

from api.reports import LiveDecision, LiveOutcome
from catalog.redis_connection import RedisClient
from engine.redis import decisions
from engine.redis.decisions import TailFilter, TailStore
from rules.model import Zone
from tests.servers.waiting import eventually

NOW = 1_795_200_000.0


@pytest.fixture
def store(redis: RedisClient) -> TailStore:
    return TailStore(redis=redis, prefix="contract:", deadline=5.0)


def decided(number: int) -> LiveDecision:
    outcomes = [LiveOutcome(number, "New books", "granted")]
    return LiveDecision(NOW, NOW + number, 7, "Library", "Desk", Zone.NEAR, "granted", outcomes, 0)


async def test_all_pages_of_a_company_share_a_watcher(store: TailStore):
    first = await store.of_company(7, "0-0", NOW)
    assert first is not None
    assert first.decisions == []
    assert await store.watchers() == [TailFilter("company-7", 7)]
    await store.write({"company-7": [decided(1), decided(2)]})
    found = await store.of_company(7, first.after, NOW)
    assert found is not None
    assert await store.of_company(7, first.after, NOW) == found
    assert found.decisions == [decided(1), decided(2)]
    await store.write({"company-7": [decided(3)]})
    rest = await store.of_company(7, found.after, NOW)
    assert rest is not None
    assert rest.decisions == [decided(3)]
    assert await store.of_company(7, rest.after, NOW) == (rest.after, [])
    # Another page begins with the latest ones.
    begun = await store.of_company(7, None, time.time())
    assert begun is not None
    assert begun.decisions == [decided(number) for number in (1, 2, 3)]


async def test_so_many_watch_and_no_more(store: TailStore, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(decisions, "MOST_WATCHERS", 3)
    watchers = [TailFilter(f"w{number}", number) for number in range(3)]
    assert [await store.watch(each) for each in watchers] == [True] * 3
    assert await store.of_company(9, None, NOW) is None
    assert await store.watch(watchers[0])
    await store.leave(watchers[1])
    assert await store.of_company(9, None, NOW) is not None
    assert {each.name for each in await store.watchers()} == {"w0", "w2", "company-9"}


async def test_one_that_was_killed_is_forgotten(
    store: TailStore, redis: RedisClient, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(decisions, "_WATCH_SECONDS", 0.2)
    await store.watch(TailFilter("killed"))
    await eventually(lambda: _is_empty(store), what="its time is over")
    monkeypatch.setattr(decisions, "_WATCH_SECONDS", 60)
    await store.watch(TailFilter("other"))
    assert await store.watchers() == [TailFilter("other")]
    assert await redis.zcard("contract:watching") == 1


async def _is_empty(store: TailStore) -> bool:
    return not await store.watchers()
