"""All clients that watch a company's decisions share one watcher."""

import pytest

from catalog.redis_connection import RedisClient
from engine.redis.tail_store import (
    MOST_COMPANIES,
    CampaignOutcome,
    CompanyWatch,
    TailedDecision,
    TailFilter,
    TailStore,
    served_watchers,
)

NOW = 1_795_200_000.0


class Clock:
    """A fixed clock that a test can move."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(redis: RedisClient) -> TailStore:
    return TailStore(redis=redis, prefix="contract:", deadline=5.0)


@pytest.fixture
def watch(store: TailStore, clock: Clock) -> CompanyWatch:
    return CompanyWatch(store, clock=clock)


def tailed(number: int) -> TailedDecision:
    outcomes = [CampaignOutcome(number, "New books", "granted")]
    return TailedDecision(NOW, NOW + number, 7, "Library", "Desk", 2, "granted", outcomes, 0)


async def test_all_who_watch_see_the_same(watch: CompanyWatch, store: TailStore) -> None:
    first = await watch.decisions(7, "0-0")
    assert first is not None
    assert first.decisions == []
    assert await store.watchers() == {"company-7": TailFilter(int(NOW), 7)}
    await store.write({"company-7": [tailed(1), tailed(2)]})
    found = await watch.decisions(7, first.after)
    assert found is not None
    assert await watch.decisions(7, first.after) == found
    assert [each.decided_at - NOW for each in found.decisions] == [1, 2]
    assert found.decisions[0].campaigns[0].outcome == "granted"
    await store.write({"company-7": [tailed(3)]})
    rest = await watch.decisions(7, found.after)
    assert rest is not None
    assert [each.decided_at - NOW for each in rest.decisions] == [3]
    again = await watch.decisions(7, rest.after)
    assert again is not None
    assert (again.decisions, again.after) == ([], rest.after)


async def test_each_request_is_a_sign_of_life(
    watch: CompanyWatch, store: TailStore, clock: Clock
) -> None:
    await watch.decisions(7, None)
    clock.now += 1
    await watch.decisions(7, None)
    assert await store.watchers() == {"company-7": TailFilter(int(NOW) + 1, 7)}


async def test_so_many_companies_and_no_more(
    watch: CompanyWatch, store: TailStore, clock: Clock
) -> None:
    await store.watch("somebody's tail", TailFilter(3))
    for company in range(1, MOST_COMPANIES + 1):
        await store.watch(f"company-{company}", TailFilter(int(NOW), company))
    assert await watch.decisions(9999, None) is None
    assert await watch.decisions(1, None) is not None
    # Pages that were closed leave their room to others; a tail on a terminal keeps its own.
    clock.now += 60
    assert await watch.decisions(9999, None) is not None
    assert set(await store.watchers()) == {"somebody's tail", "company-9999"}


def test_which_watchers_are_served() -> None:
    """A bounded number of watchers of all companies, and of each company; pages come first."""
    everywhere = {f"a{number}": TailFilter(1) for number in range(10)}
    of_one = {f"b{number}": TailFilter(1, 7) for number in range(10)}
    pages = {f"company-{number}": TailFilter(1, number) for number in range(1, MOST_COMPANIES + 9)}
    served = served_watchers(everywhere | of_one | pages)
    assert [name for name in served if name in everywhere] == [f"a{n}" for n in range(8)]
    assert [name for name in served if name in of_one] == [f"b{n}" for n in range(7)]
    assert len([name for name in served if name in pages]) == MOST_COMPANIES
    assert "company-7" in served
