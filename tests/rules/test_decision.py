from datetime import datetime
from typing import Any

import pytest

from rules.decision import Target, decide
from rules.model import CampaignSnapshot, Decision, Reason, Zone
from tests.rules.records import beacon, campaign, epoch, venue

NOW = epoch("2026-11-20T12:00:00Z")
MAX_AGE = 300.0
OPEN = campaign(id=1)
CAPPED = campaign(id=2, delay=3600)
EVENING = campaign(id=3, start_minute=1320, end_minute=1380)
OVER = campaign(id=4, end=datetime.fromisoformat("2026-06-30T00:00:00+00:00"))


def target(*campaigns: CampaignSnapshot, **fields: Any) -> Target:
    return Target.of_place(beacon(**fields), campaigns or (OPEN,))


def at(
    aim: Target | None, zone: Zone = Zone.NEAR, t: float = NOW, held: dict[int, float] | None = None
) -> Decision:
    return decide(aim, zone, t, NOW, MAX_AGE, held or {})


def test_each_check_in_its_order() -> None:
    closed = venue(active=False)
    off = campaign(active=False)
    nothing = Target(venue(), True, Zone.NEAR, ())
    far, old, early = Zone.FAR, NOW - 301, NOW + 301
    expected = {
        Reason.UNKNOWN_BEACON: at(None, Zone.UNKNOWN, old),
        Reason.INACTIVE_VENUE: at(target(off, venue=closed, active=False), Zone.UNKNOWN, old),
        Reason.INACTIVE_BEACON: at(target(off, active=False), Zone.UNKNOWN, old),
        Reason.NO_CAMPAIGN: at(nothing, Zone.UNKNOWN, old),
        Reason.UNKNOWN_PROXIMITY: at(target(off), Zone.UNKNOWN, old),
        Reason.TOO_FAR: at(target(off), far, old),
        Reason.STALE: at(target(off), t=old),
        Reason.FUTURE: at(target(off), t=early),
        Reason.INACTIVE: at(target(off)),
        Reason.ENDED: at(target(off, OVER)),
        Reason.OUTSIDE_HOURS: at(target(off, OVER, EVENING)),
        Reason.THROTTLED: at(target(off, CAPPED, EVENING), held={2: NOW - 60}),
        Reason.GRANTED: at(target(off, CAPPED, OPEN, EVENING), held={2: NOW - 60}),
    }
    assert {reason: decision.reason for reason, decision in expected.items()} == {
        reason: reason for reason in expected
    }


def test_a_refused_detection_counts_once_whatever_it_has_of_campaigns() -> None:
    decision = at(target(OPEN, CAPPED), Zone.FAR)
    assert decision.outcomes == ((Reason.TOO_FAR, 1),)
    assert decision.granted == ()


def test_a_decision_belongs_to_the_company_of_its_venue() -> None:
    ours = target(CAPPED, venue=venue(company_id=7))
    decisions = (at(ours), at(ours, held={2: NOW}), at(ours, Zone.FAR), at(ours, t=NOW - 301))
    assert [each.company_id for each in decisions] == [7, 7, 7, 7]
    assert [each.tally.company_id for each in decisions] == [7, 7, 7, 7]
    assert at(None).company_id == 0


def test_every_campaign_is_counted() -> None:
    off = campaign(id=5, active=False)
    decision = at(target(EVENING, off, OVER, OPEN, CAPPED, EVENING), held={2: NOW - 60})
    assert decision.closed == ((Reason.INACTIVE, 1), (Reason.ENDED, 1), (Reason.OUTSIDE_HOURS, 2))
    assert decision.throttled == 1
    assert decision.outcomes == (*decision.closed, (Reason.THROTTLED, 1))
    assert decision.granted == (OPEN,)


@pytest.mark.parametrize(
    ("reach", "fires"),
    [
        (Zone.FAR, {Zone.FAR, Zone.NEAR, Zone.IMMEDIATE}),
        (Zone.NEAR, {Zone.NEAR, Zone.IMMEDIATE}),
        (Zone.IMMEDIATE, {Zone.IMMEDIATE}),
    ],
)
def test_reach_is_the_farthest_zone_that_triggers(reach: Zone, fires: set[Zone]) -> None:
    aim = target(reach=reach)
    assert {zone for zone in Zone if at(aim, zone).granted} == fires


def test_a_target_without_zones_fires_in_any() -> None:
    fence = Target(venue(), True, None, (OPEN,))
    assert all(at(fence, zone).granted for zone in Zone)


@pytest.mark.parametrize(
    ("age", "reason"),
    [
        (300, Reason.GRANTED),
        (300.1, Reason.STALE),
        (-300, Reason.GRANTED),
        (-300.1, Reason.FUTURE),
    ],
)
def test_age_is_bounded_on_both_sides(age: float, reason: Reason) -> None:
    assert at(target(), t=NOW - age).reason is reason


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (NOW - 3600, Reason.GRANTED),
        (NOW - 3599.5, Reason.THROTTLED),
        (NOW, Reason.THROTTLED),
        (NOW + 60, Reason.THROTTLED),
    ],
)
def test_the_cache_delay_rolls(sent: float, reason: Reason) -> None:
    assert at(target(CAPPED), held={2: sent}).reason is reason


def test_without_a_delay_nothing_is_throttled() -> None:
    assert at(target(OPEN), held={1: NOW + 60}).granted == (OPEN,)


def test_decisions_are_shared_so_that_they_can_be_counted_by_identity() -> None:
    aim = target(OPEN, CAPPED, EVENING)
    assert at(aim) is at(aim, t=NOW + 1)
    capped = target(CAPPED, EVENING)
    assert at(capped, held={2: NOW}) is at(capped, held={2: NOW}, t=NOW + 1)
    evening = target(EVENING)
    assert at(evening) is at(evening, t=NOW - 1)
    assert at(aim, Zone.FAR) is at(evening, Zone.FAR)
    assert len({at(aim), at(evening), at(aim, Zone.FAR)}) == 3


def test_the_phase_is_worked_out_once_per_change() -> None:
    aim = target(EVENING)
    noon, evening = aim.phase_at(NOW), aim.phase_at(epoch("2026-11-20T22:00:00Z"))
    assert (noon.since, noon.until) == (epoch("2026-11-20T00:00:00Z"), evening.since)
    assert noon.open == ()
    assert evening.open == (EVENING,)
    assert aim.phase_at(NOW) is aim.phase_at(noon.since) is noon
    assert aim.phase_at(evening.until - 0.001) is evening


def test_a_target_without_campaigns_has_one_phase() -> None:
    phase = Target(venue(), True, Zone.FAR, ()).phase_at(NOW)
    assert phase.none_granted.reason is Reason.NO_CAMPAIGN
