"""Quiet hours, compared with the oracle of schedules."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rules.decision import NOT_ASKED, Target, decide
from rules.model import CampaignSnapshot, CompanyRules, QuietHours, Reason, Zone
from rules.schedule import quiet_schedule
from tests.rules import schedule_oracle
from tests.rules.campaigns import DAY, MINUTES, anchors, instants, zones
from tests.rules.records import campaign, epoch, venue

NIGHT = epoch("2026-11-20T22:30:00Z")
minutes = st.sampled_from(MINUTES) | st.integers(0, 1439)
hours = st.builds(QuietHours, minutes, minutes, st.just(127) | st.integers(0, 127))


@settings(max_examples=500)
@given(zones.filter(bool), hours, st.data())
def test_the_hours_are_those_of_the_oracle(
    zone: str, hours: QuietHours, data: st.DataObject
) -> None:
    """Mostly around the changes of the zone's clock."""
    schedule = quiet_schedule(hours, [zone])
    assert schedule is not None
    open_while_quiet = campaign(
        start=datetime(2000, 1, 1, tzinfo=UTC),
        end=datetime(2100, 1, 1, tzinfo=UTC),
        start_minute=hours.start_minute,
        end_minute=hours.end_minute,
        weekdays=hours.weekdays,
        time_zone=zone,
    )
    near = data.draw(anchors(zone))
    at = data.draw(instants(near, open_while_quiet).filter(lambda t: abs(t - near) < 9 * DAY))
    verdict = schedule.verdict(at)
    assert verdict.since <= at < verdict.until
    begin = max(verdict.since, at - 2 * DAY)
    for each in (begin, at, verdict.until - 1, verdict.until):
        is_quiet = schedule.verdict(each).reason is Reason.QUIET_HOURS
        assert is_quiet == (schedule_oracle.verdict(open_while_quiet, each) is None)


def target(*campaigns: CampaignSnapshot, time_zone: str | None = "Europe/Paris") -> Target:
    hours = QuietHours(1320, 480)
    rules = CompanyRules(company_id=1, quiet_hours=hours, time_zone="Asia/Tokyo")
    place = venue(time_zone=time_zone)
    return Target(place, True, None, campaigns, rules=rules)


@pytest.mark.parametrize(
    ("device", "of_venue", "reason"),
    [
        (None, "Europe/Paris", "quiet_hours"),  # 23:30
        ("America/New_York", "Europe/Paris", "granted"),  # 17:30
        ("Asia/Tokyo", "America/New_York", "quiet_hours"),  # 07:30
        ("Mars/Olympus", "America/New_York", "granted"),
        (NOT_ASKED, "Europe/Paris", "granted"),
    ],
)
def test_the_first_zone_that_is_known_counts(
    device: str | None, of_venue: str | None, reason: str
) -> None:
    place = target(campaign(), time_zone=of_venue)
    assert decide(place, Zone.NEAR, NIGHT, NIGHT, 300, {}, device).reason.value == reason


def test_quiet_hours_are_named_before_a_claim() -> None:
    place = target(campaign(delay=3600), campaign(id=2, active=False))
    decision = decide(place, Zone.NEAR, NIGHT, NIGHT, 300, {1: NIGHT - 5})
    assert decision.reason is Reason.QUIET_HOURS
    assert dict(decision.by_campaign) == {1: Reason.QUIET_HOURS, 2: Reason.INACTIVE}
