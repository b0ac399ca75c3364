"""Quiet hours, compared with the oracle of schedules, at every change of every zone's clocks."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

import pytest

from rules.decision import NOT_ASKED, Target, decide
from rules.model import CampaignSnapshot, CompanyRules, QuietHours, Reason, Zone
from rules.schedule import quiet_schedule
from tests.rules import schedule_oracle
from tests.rules.records import campaign, epoch, geofence, venue

YEARS = 2021, 2031
HOURS = (QuietHours(1320, 480), QuietHours(60, 180), QuietHours(150, 150, 0b1000001))
CLOSE = (-61, -60, -1, 0, 1, 60)  # seconds around an edge
NIGHT = epoch("2026-11-20T22:30:00Z")


def transitions(name: str) -> Iterator[int]:
    """The instants (epoch s) at which the offset of a zone changes, found by halving."""
    zone = ZoneInfo(name)

    @cache
    def offset(instant: int) -> timedelta | None:
        return datetime.fromtimestamp(instant, zone).utcoffset()

    begin, end = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in YEARS)
    for first in range(begin, end, 86_400):
        low, high = first, first + 86_400
        if offset(low) == offset(high):
            continue
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if offset(middle) == offset(low) else (low, middle)
        yield high


def open_while(hours: QuietHours, zone: str) -> CampaignSnapshot:
    """A campaign that the oracle has open while the company is quiet."""
    return campaign(
        start=datetime(2000, 1, 1, tzinfo=UTC),
        end=datetime(2100, 1, 1, tzinfo=UTC),
        start_minute=hours.start_minute,
        end_minute=hours.end_minute,
        weekdays=hours.weekdays,
        time_zone=zone,
    )


def test_every_change_of_every_zone_in_ten_years() -> None:
    compared = 0
    for zone in sorted(available_timezones()):
        changes = list(transitions(zone)) or [int(NIGHT)]
        for hours in HOURS:
            schedule = quiet_schedule(hours, [zone])
            assert schedule is not None
            shown = open_while(hours, zone)
            for change in changes:
                # At the change, and at the edges of the hours before and after it.
                edges = {change, *edges_around(hours, zone, change)}
                for at in [edge + seconds for edge in edges for seconds in CLOSE]:
                    quiet = schedule_oracle.verdict(shown, at) is None
                    reason, since, until = schedule.verdict(at)
                    assert (reason is Reason.QUIET_HOURS) == quiet, (zone, hours, at)
                    assert since <= at < until
                    compared += 1
    assert compared > 200_000


def edges_around(hours: QuietHours, zone: str, change: int) -> Iterator[int]:
    day = datetime.fromtimestamp(change, ZoneInfo(zone))
    for minute in (hours.start_minute, hours.end_minute):
        wall = day.replace(hour=minute // 60, minute=minute % 60, second=0)
        for fold in (0, 1):
            yield int(wall.replace(fold=fold).timestamp())


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
