"""Sums in memory: bounded, written in parts, gathered again while Redis is down."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from engine.process.metrics import Metrics
from engine.redis import figures
from engine.redis.figures import CompanyDay, FigureStore, FigureSums
from rules.model import Reason

AT = datetime(2026, 11, 20, 23, 59, tzinfo=UTC)
DAY = AT.date()


class WrittenFigures(FigureStore):
    """Keeps what was written; raises `error` instead, and refuses the companies of `refusing`."""

    def __init__(self) -> None:
        none: Any = None
        super().__init__(redis=none, prefix="", deadline=1.0)
        self.found: dict[CompanyDay, dict[str, int]] = {}
        self.calls: list[int] = []
        self.error: Exception | None = None
        self.refusing: set[int] = set()

    async def add(self, days: Mapping[CompanyDay, Mapping[str, int]]) -> list[CompanyDay]:
        if self.error is not None:
            raise self.error
        self.calls.append(len(days))
        refused = [place for place in days if place.company_id in self.refusing]
        self.found |= {place: dict(day) for place, day in days.items() if place not in refused}
        return refused


class SumsWorld:
    """Sums, where they are written to, and a clock."""

    def __init__(self) -> None:
        self.now = AT.timestamp()
        self.metrics = Metrics()
        self.written = WrittenFigures()
        self.sums = FigureSums(store=self.written, metrics=self.metrics, clock=lambda: self.now)

    def count(self, name: str) -> float:
        return self.metrics.registry.get_sample_value(f"proximity_{name}_total") or 0.0

    def refuse(self, company: int, *campaigns: int) -> None:
        self.sums.note_reason(company, Reason.ENDED, len(campaigns))
        for number in campaigns:
            self.sums.note_campaign(company, number, Reason.ENDED, 1)

    def found(self, company: int) -> dict[str, int]:
        return self.written.found.get(CompanyDay(company, DAY), {})


@pytest.fixture
def world() -> SumsWorld:
    return SumsWorld()


async def test_a_day_and_an_hour_are_those_of_utc(world: SumsWorld):
    world.sums.note_notifications(1, 2)
    world.sums.note_notifications(2, 0)
    world.now += 60
    world.sums.note_detections(1, 3)
    await world.sums.write()
    next_day = CompanyDay(1, date(2026, 11, 21))
    assert world.written.found == {CompanyDay(1, DAY): {"n:23": 2}, next_day: {"d:0": 3}}
    await world.sums.write()
    assert world.written.calls == [2]  # nothing is no call


@pytest.mark.parametrize(
    ("error", "added", "dropped"),
    [
        (RedisConnectionError(), 2, 0),
        (OSError(), 2, 0),
        # It may have been written: a reason, and a campaign.
        (TimeoutError(), 1, 2),
        (RedisTimeoutError(), 1, 2),
    ],
)
async def test_while_redis_is_down_sums_grow_on(
    world: SumsWorld, error: Exception, added: int, dropped: int
):
    world.refuse(1, 7)
    world.written.error = error
    await world.sums.write()
    world.written.error = None
    world.refuse(1, 7)
    await world.sums.write()
    assert world.found(1) == {"r:ended": added, "c:7:ended": added}
    assert (world.count("redis_errors"), world.count("figures_dropped")) == (1, dropped)


async def test_parts_are_bounded_and_one_that_fails_leaves_the_others(world: SumsWorld):
    for company in range(1, 251):
        world.refuse(company, 7)
    world.written.refusing = {3}
    await world.sums.write()
    assert world.written.calls == [100, 100, 50]
    assert len(world.written.found) == 249
    world.written.refusing = set()
    await world.sums.write()
    assert world.written.calls[3:] == [1]


async def test_companies_and_campaigns_are_bounded(
    world: SumsWorld, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(figures, "_MOST_CAMPAIGNS", 10)
    monkeypatch.setattr(figures, "_MOST_SUMS", 25)
    world.refuse(1, *range(10_000))
    assert world.count("figures_dropped") == 0  # its reasons have them
    world.refuse(2, *range(20))
    world.refuse(3, *range(8))
    assert world.count("figures_dropped") == 4
    for _ in range(3):
        # Away for long, it gathers no more than that.
        world.written.error = OSError()
        await world.sums.write()
    world.written.error = None
    await world.sums.write()
    assert [len(world.found(company)) for company in (1, 2, 3)] == [10, 10, 5]
    assert world.found(1)["r:ended"] == 10_000
    world.refuse(4, *range(10))
    await world.sums.write()
    assert world.found(4)["r:ended"] == 10
