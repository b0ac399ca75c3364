"""Quiet hours: those of the oracle of schedules, and in whose zone they are."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rules.decision import NOT_ASKED, Target, decide
from rules.model import CampaignSnapshot, CompanyRules, QuietHours, Reason, Zone
from rules.schedule import quiet_schedule
from tests.rules import schedule_oracle
from tests.rules.campaigns import anchors, campaigns, instants, zones
from tests.rules.records import campaign, epoch, geofence, venue

NIGHT = epoch("2026-11-20T22:30:00Z")
ALWAYS = {"start": datetime(2000, 1, 1, tzinfo=UTC), "end": datetime(2100, 1, 1, tzinfo=UTC)}


@settings(max_examples=200)
@given(zones.filter(bool), st.data())
def test_they_are_those_of_the_oracle(zone: str, data: st.DataObject) -> None:
    """It has a campaign open while the company is quiet, also where the clock changes."""
    near = data.draw(anchors(zone))
    drawn = data.draw(campaigns(zone, near))
    at = data.draw(instants(near, drawn))
    schedule = quiet_schedule(
        QuietHours(drawn.start_minute, drawn.end_minute, drawn.weekdays), [None, zone]
    )
    assert schedule is not None
    quiet = schedule_oracle.verdict(replace(drawn, active=True, **ALWAYS), at) is None
    reason, since, until = schedule.verdict(at)
    assert (reason is Reason.QUIET_HOURS) == quiet
    assert since <= at < until


def target(*campaigns: CampaignSnapshot, time_zone: str | None = "Europe/Paris") -> Target:
    hours = QuietHours(1320, 480)
    rules = CompanyRules(company_id=1, quiet_hours=hours, time_zone="Asia/Tokyo")
    return Target(geofence(venue=venue(time_zone=time_zone)), campaigns, rules=rules)


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
