"""The contract by example, for the rules and for their oracle; that the two agree; and what
schedules share."""

from datetime import datetime
from math import inf
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rules.model import CampaignSnapshot, Reason
from rules.schedule import LocalClock, Schedule, schedule_of, zone_clock
from tests.rules import schedule_oracle
from tests.rules.campaigns import DAY, anchors, campaigns, instants, zones
from tests.rules.records import campaign, epoch

ISO = datetime.fromisoformat
FRIDAY = 1 << 4
OPEN = None
CLOSED, ENDED, EARLY = Reason.OUTSIDE_HOURS, Reason.ENDED, Reason.NOT_STARTED
OTHER_DAY = Reason.WRONG_WEEKDAY

NIGHT = {"start_minute": 22 * 60, "end_minute": 2 * 60}
FRIDAY_NIGHT = NIGHT | {"weekdays": FRIDAY}
MARCH = {
    "start": ISO("2026-03-01T00:00:00+01:00"),
    "end": ISO("2026-03-31T00:00:00+01:00"),
    "time_zone": "Europe/Paris",
}
UNTIL_NOON = {"end": ISO("2026-03-31T12:00:00+00:00")}
# Without a zone the offset that is written in the start rules, in summer too.
NEWFOUNDLAND = {
    "start": ISO("2026-01-01T00:00:00-03:30"),
    "start_minute": 9 * 60,
    "end_minute": 10 * 60,
}
LAST_NIGHT = NIGHT | {"end": ISO("2026-11-20T00:00:00+00:00")}
FIRST_NIGHT = NIGHT | {"start": ISO("2026-11-20T00:00:00+00:00")}
TO_ZERO = {"start_minute": 1320, "end_minute": 0, "weekdays": FRIDAY}
ALL_DAY = {"start_minute": 540, "end_minute": 540, "weekdays": FRIDAY}
SKIPPED = {"start_minute": 120, "end_minute": 180, "time_zone": "Europe/Paris"}
REPEATED = SKIPPED | {"end_minute": 150}


@pytest.mark.parametrize(
    ("fields", "at", "reason"),
    [
        (MARCH, "2026-02-28T23:59:59.900+01:00", EARLY),
        (MARCH, "2026-03-31T23:59:59.900+02:00", OPEN),
        (MARCH, "2026-04-01T00:00:00+02:00", ENDED),
        (UNTIL_NOON, "2026-03-31T12:00:00.999+00:00", OPEN),
        (NEWFOUNDLAND, "2026-07-01T12:29:59+00:00", CLOSED),
        (NEWFOUNDLAND, "2026-07-01T12:30:00+00:00", OPEN),
        (FRIDAY_NIGHT, "2026-11-20T01:59:59+00:00", OTHER_DAY),
        (FRIDAY_NIGHT, "2026-11-21T01:59:59+00:00", OPEN),
        (LAST_NIGHT, "2026-11-21T01:59:59+00:00", OPEN),
        (FIRST_NIGHT, "2026-11-20T01:00:00+00:00", EARLY),
        (ALL_DAY, "2026-11-20T23:59:59Z", OPEN),
        (TO_ZERO, "2026-11-20T23:59:59Z", OPEN),
        (SKIPPED, "2026-03-29T01:00:00Z", CLOSED),
        (REPEATED, "2026-10-25T00:29:59Z", OPEN),
        (REPEATED, "2026-10-25T01:00:00Z", OPEN),
    ],
)
def test_the_contract_by_example(fields: dict[str, Any], at: str, reason: Reason | None) -> None:
    verdict = Schedule(campaign(**fields)).verdict(epoch(at))
    assert verdict.reason is schedule_oracle.verdict(campaign(**fields), epoch(at)) is reason
    assert verdict.since <= epoch(at) < verdict.until


@pytest.mark.parametrize("name", ["Europe/Nowhere", "", "Europe", "../etc/passwd", "\0"])
def test_an_unknown_time_zone_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no IANA time zone"):
        Schedule(campaign(time_zone=name))


@pytest.mark.parametrize("naive", ["start", "end"])
def test_either_date_without_an_offset_is_refused(naive: str) -> None:
    with pytest.raises(ValueError, match=r"^campaign 7: start and end need a UTC offset$"):
        Schedule(campaign(id=7, **{naive: ISO("2026-06-01T00:00:00")}))


def test_campaigns_with_equal_hours_and_dates_share_a_schedule() -> None:
    assert schedule_of(campaign(id=1)) is schedule_of(campaign(id=2, name="Other", delay=60))
    different = [
        campaign(),
        campaign(active=False),
        # The same instants, written in another offset.
        campaign(start=ISO("2026-01-01T01:00:00+01:00")),
        campaign(end=ISO("2026-12-31T01:00:00+01:00")),
    ]
    assert len({id(schedule_of(each)) for each in different}) == len(different)


@pytest.mark.parametrize("t", [-1e15, -62_135_596_800.0, 253_402_300_799.0, 1e15])
def test_instants_beyond_the_calendar_have_a_verdict(t: float) -> None:
    first, last = ISO("0001-01-01T00:00:00Z"), ISO("9999-12-31T00:00:00Z")
    verdict = Schedule(campaign(start=first, end=last, time_zone="Asia/Beirut")).verdict(t)
    assert verdict.since <= t < verdict.until


@pytest.mark.parametrize(
    ("zone", "instant", "shown"),
    [
        ("UTC", -62_135_596_800, "0001-01-01T00:00:00+0000"),
        ("Pacific/Kiritimati", 253_402_300_799, "9999-12-31T23:59:59+1400"),
        ("Europe/Paris", -inf, "0001-01-01T00:00:00+0009"),
    ],
)
def test_a_clock_shows_the_first_and_the_last_year(zone: str, instant: float, shown: str) -> None:
    assert zone_clock(zone).written(instant) == shown


@st.composite
def meetings(draw: st.DrawFn) -> tuple[CampaignSnapshot, list[float]]:
    zone = draw(zones)
    near = draw(anchors(zone))
    chosen = draw(campaigns(zone, near))
    return chosen, draw(st.lists(instants(near, chosen), min_size=1, max_size=6))


@settings(max_examples=1000)
@given(meetings(), st.lists(st.floats(0, 1, exclude_max=True), min_size=6, max_size=6))
def test_the_verdict_is_that_of_the_oracle_and_constant_where_it_says_so(
    meeting: tuple[CampaignSnapshot, list[float]], shares: list[float]
) -> None:
    chosen, moments = meeting
    schedule = schedule_of(chosen)
    for t in moments:
        assert schedule.verdict(t).reason == schedule_oracle.verdict(chosen, t)
    t = moments[0]
    reason, since, until = schedule.verdict(t)
    assert since <= t < until
    begin = t - 500 * DAY if since == -inf else since
    end = t + 500 * DAY if until == inf else until
    inside = [min(begin + share * (end - begin), end - 0.001) for share in shares]
    for other in (begin, *inside, end - 1, end - 0.001):
        assert schedule_oracle.verdict(chosen, other) == reason
        assert schedule.verdict(other).reason == reason


@given(zones.filter(bool), st.integers(-2_000_000_000, 4_000_000_000), st.data())
def test_a_stretch_has_one_offset(zone: str, instant: int, data: st.DataObject) -> None:
    since, until, offset = LocalClock(ZoneInfo(zone)).stretch_at(instant)
    assert since <= instant < until
    for other in (since, until - 1, data.draw(st.integers(since, until - 1))):
        seen = datetime.fromtimestamp(other, ZoneInfo(zone)).utcoffset()
        assert seen is not None
        assert seen.total_seconds() == offset
