"""Decisions are counted as they are made, and multiplied out by campaign later."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from engine.process.lifecycle import cancel
from engine.trigger import decision_counts as decision_sums
from engine.trigger.decision_counts import DecisionSums
from rules.decision import Target, decide
from rules.model import Decision, Zone
from tests.redis.test_figure_sums import SumsWorld
from tests.rules.records import beacon, campaign, epoch, venue

AT = epoch("2026-11-20T10:00:00+00:00")
OPEN, LATER = campaign(id=1, delay=60), campaign(id=2, start_minute=1200)
OVER = campaign(id=3, end=datetime(2026, 2, 1, tzinfo=UTC))


class DecisionWorld(SumsWorld):
    """The sums of a trigger."""

    def __init__(self) -> None:
        super().__init__()
        self.decisions = DecisionSums(self.sums)

    def note(self, decisions: Sequence[Decision]) -> None:
        tallies = Counter(decision.tally for decision in decisions)
        self.decisions.note_decided(decisions, tallies)

    async def figures(self, company: int = 1) -> dict[str, int]:
        """What was written for a company when the process ended."""
        task = asyncio.create_task(self.decisions.run())
        await asyncio.sleep(0)
        await cancel([task])
        return self.found(company)


@pytest.fixture
def world() -> DecisionWorld:
    return DecisionWorld()


def target(company: int = 1, *, active: bool = True) -> Target:
    place = beacon(venue=venue(company_id=company), active=active)
    return Target.of_place(place, [OPEN, LATER, OVER])


def decided(
    where: Target | None, zone: Zone = Zone.NEAR, at: float = AT, held: bool = True
) -> Decision:
    return decide(where, zone, at, AT, 300, {OPEN.id: AT - 1} if held else {})


async def test_by_hour_reason_and_campaign(world: DecisionWorld):
    here = target()
    world.note([decided(here)] * 5 + [decided(here, Zone.FAR)] * 2)
    world.note([decided(here), decided(here, at=AT - 900)])
    assert await world.figures() == {
        "d:23": 9,
        **dict.fromkeys(("r:throttled", "r:outside_hours", "r:ended"), 6),
        "r:too_far": 2,
        "r:stale": 1,
        **dict.fromkeys(("c:1:throttled", "c:2:outside_hours", "c:3:ended"), 6),
    }


async def test_each_company_has_its_own(world: DecisionWorld):
    far = [decided(target(company), Zone.FAR) for company in (1, 2, 2, 3)]
    world.note([*far, decided(None)])
    counts = [(await world.figures(company))["r:too_far"] for company in (1, 2, 3)]
    assert counts == [1, 2, 1]
    assert {place.company_id for place in world.written.found} == {1, 2, 3}


async def test_beacons_that_are_off_add_a_reason_and_no_detection(world: DecisionWorld):
    world.note([decided(target(active=False))] * 3)
    assert await world.figures() == {"r:inactive_beacon": 3}


async def test_grants_are_not_counted_twice(world: DecisionWorld):
    """Grants are counted separately, once Redis has answered which hold their claim."""
    granted = decided(target(), held=False)
    assert granted.granted == (OPEN,)
    world.note([granted] * 2)
    refused = ("r:outside_hours", "r:ended", "c:2:outside_hours", "c:3:ended")
    assert await world.figures() == {"d:23": 2} | dict.fromkeys(refused, 2)


async def test_a_flood_of_different_decisions_is_bounded(
    world: DecisionWorld, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(decision_sums, "_MOST_WAITING", 10)
    monkeypatch.setattr(decision_sums, "_MOST_CAMPAIGNS", 90)  # thirty decisions of three
    for company in range(1, 101):
        world.note([decided(target(company))])
        assert len(world.decisions._tallies) <= 10
        assert len(world.decisions._decisions) <= 30
    await world.figures()
    days = world.written.found.values()
    assert [day["r:ended"] for day in days] == [1] * 100
    assert sum(day.get("c:3:ended", 0) for day in days) == 30
    assert world.count("figures_dropped") == 70


async def test_of_a_large_batch_a_part_stands_for_all(world: DecisionWorld):
    here, there = decided(target()), decided(target(2))
    world.note([here] * 1600)
    world.note([here, there] * 1600)
    for company, count in ((1, 3200), (2, 1600)):
        figures = await world.figures(company)
        assert (figures["d:23"], figures["r:ended"]) == (count, count)
    found = [world.found(company).get("c:3:ended", 0) for company in (1, 2)]
    assert found in ([4800, 0], [1600, 3200])
