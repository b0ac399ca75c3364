from datetime import datetime
from math import inf
from typing import Any

import pytest

from rules import schedule
from rules.model import Reason
from rules.schedule import Schedule, fixed_clock, schedule_of, zone_clock
from tests.rules.records import campaign, epoch

ISO = datetime.fromisoformat
NIGHT = {"start_minute": 22 * 60, "end_minute": 2 * 60}
FRIDAY = 1 << 4


def reason_at(text: str, **fields: Any) -> Reason | None:
    verdict = Schedule(campaign(**fields)).verdict(epoch(text))
    assert verdict.since <= epoch(text) < verdict.until
    return verdict.reason


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        ("2026-02-28T23:59:59.900+01:00", Reason.NOT_STARTED),
        ("2026-03-01T00:00:00+01:00", None),
        ("2026-03-31T23:59:59.900+02:00", None),
        ("2026-04-01T00:00:00+02:00", Reason.ENDED),
    ],
)
def test_an_end_at_midnight_includes_that_day(at: str, reason: Reason | None) -> None:
    dates = {"start": ISO("2026-03-01T00:00:00+01:00"), "end": ISO("2026-03-31T00:00:00+01:00")}
    assert reason_at(at, **dates, time_zone="Europe/Paris") is reason


def test_an_end_with_a_time_is_that_instant() -> None:
    end = ISO("2026-03-31T12:00:00+00:00")
    assert reason_at("2026-03-31T12:00:00.999+00:00", end=end) is None
    assert reason_at("2026-03-31T12:00:01+00:00", end=end) is Reason.ENDED


def test_without_a_time_zone_the_offset_of_start_rules() -> None:
    start = ISO("2026-01-01T00:00:00-03:30")
    hours = {"start": start, "start_minute": 9 * 60, "end_minute": 10 * 60}
    assert reason_at("2026-07-01T12:29:59+00:00", **hours) is Reason.OUTSIDE_HOURS
    assert reason_at("2026-07-01T12:30:00+00:00", **hours) is None
    assert reason_at("2026-07-01T13:30:00+00:00", **hours) is Reason.OUTSIDE_HOURS


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        ("2026-11-20T01:59:59+00:00", Reason.WRONG_WEEKDAY),
        ("2026-11-20T21:59:59+00:00", Reason.OUTSIDE_HOURS),
        ("2026-11-20T22:00:00+00:00", None),
        ("2026-11-21T01:59:59+00:00", None),
        ("2026-11-21T02:00:00+00:00", Reason.WRONG_WEEKDAY),
        ("2026-11-21T22:00:00+00:00", Reason.WRONG_WEEKDAY),
    ],
)
def test_over_midnight_the_day_is_that_of_the_opening(at: str, reason: Reason | None) -> None:
    assert reason_at(at, weekdays=FRIDAY, **NIGHT) is reason


def test_the_night_of_the_last_day_continues_after_midnight() -> None:
    end = ISO("2026-11-20T00:00:00+00:00")
    assert reason_at("2026-11-21T01:59:59+00:00", end=end, **NIGHT) is None
    assert reason_at("2026-11-21T02:00:00+00:00", end=end, **NIGHT) is Reason.ENDED


def test_the_night_before_the_first_day_is_not_started() -> None:
    start = ISO("2026-11-20T00:00:00+00:00")
    assert reason_at("2026-11-20T01:00:00+00:00", start=start, **NIGHT) is Reason.NOT_STARTED
    assert reason_at("2026-11-20T02:00:00+00:00", start=start, **NIGHT) is Reason.OUTSIDE_HOURS


@pytest.mark.parametrize("minute", [0, 540, 1439])
def test_equal_hours_are_the_whole_day(minute: int) -> None:
    for at in ("2026-11-20T00:00:00Z", "2026-11-20T09:00:00Z", "2026-11-20T23:59:59Z"):
        assert reason_at(at, start_minute=minute, end_minute=minute, weekdays=FRIDAY) is None


@pytest.mark.parametrize("end_minute", [0, 1440])
def test_an_end_at_midnight_closes_the_opening_day(end_minute: int) -> None:
    hours = {"start_minute": 1320, "end_minute": end_minute, "weekdays": FRIDAY}
    assert reason_at("2026-11-20T23:59:59Z", **hours) is None
    assert reason_at("2026-11-21T00:00:00Z", **hours) is Reason.WRONG_WEEKDAY
    assert reason_at("2026-11-20T00:00:00Z", **hours) is Reason.OUTSIDE_HOURS


def test_a_skipped_hour_never_matches() -> None:
    hours = {"start_minute": 120, "end_minute": 180, "time_zone": "Europe/Paris"}
    assert reason_at("2026-03-29T00:59:59Z", **hours) is Reason.OUTSIDE_HOURS
    assert reason_at("2026-03-29T01:00:00Z", **hours) is Reason.OUTSIDE_HOURS


def test_a_repeated_hour_matches_both_times() -> None:
    hours = {"start_minute": 120, "end_minute": 150, "time_zone": "Europe/Paris"}
    assert reason_at("2026-10-25T00:29:59Z", **hours) is None
    assert reason_at("2026-10-25T00:30:00Z", **hours) is Reason.OUTSIDE_HOURS
    assert reason_at("2026-10-25T01:00:00Z", **hours) is None
    assert reason_at("2026-10-25T01:30:00Z", **hours) is Reason.OUTSIDE_HOURS


def test_the_first_check_that_fails_is_the_reason() -> None:
    at, closed = epoch("2026-11-20T12:00:00Z"), {"start_minute": 0, "end_minute": 1, "weekdays": 0}
    past, future = ISO("2026-01-01T00:00:00Z"), ISO("2027-01-01T00:00:00Z")
    never = campaign(active=False, start=future, end=past, **closed)
    assert Schedule(never).verdict(at) == (Reason.INACTIVE, -inf, inf)
    both = campaign(start=future, end=past, **closed)
    assert Schedule(both).verdict(at).reason is Reason.NOT_STARTED
    assert Schedule(campaign(end=past, **closed)).verdict(at).reason is Reason.ENDED
    assert Schedule(campaign(**closed)).verdict(at).reason is Reason.WRONG_WEEKDAY


@pytest.mark.parametrize("name", ["Europe/Nowhere", "", "Europe", "../etc/passwd", "\0"])
def test_an_unknown_time_zone_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no IANA time zone"):
        Schedule(campaign(time_zone=name))


def test_dates_without_an_offset_are_refused() -> None:
    with pytest.raises(ValueError, match="UTC offset"):
        Schedule(campaign(end=ISO("2026-12-31T00:00:00")))


def test_a_date_with_a_fraction_of_a_second_is_that_whole_second() -> None:
    start, end = ISO("2026-06-01T09:00:00.500+00:00"), ISO("2026-06-01T17:00:00.500+00:00")
    made = Schedule(campaign(start=start, end=end))
    assert (made.start, made.end) == (epoch("2026-06-01T09:00:00Z"), epoch("2026-06-01T17:00:00Z"))


def test_campaigns_with_equal_hours_and_dates_share_a_schedule() -> None:
    assert schedule_of(campaign(id=1)) is schedule_of(campaign(id=2, name="Other", delay=60))
    different = [
        campaign(),
        campaign(active=False),
        campaign(asleep=True),
        campaign(weekdays=FRIDAY),
        campaign(start_minute=1),
        campaign(end_minute=1),
        campaign(time_zone="Europe/Paris"),
        campaign(start=ISO("2026-01-02T00:00:00+00:00")),
        campaign(end=ISO("2026-01-02T00:00:00+00:00")),
        # The same instants, written in another offset.
        campaign(start=ISO("2026-01-01T01:00:00+01:00")),
        campaign(end=ISO("2026-12-31T01:00:00+01:00")),
    ]
    assert len({id(schedule_of(each)) for each in different}) == len(different)


def test_at_most_4096_schedules_are_shared() -> None:
    made = [campaign(start_minute=n // 64, end_minute=100 + n % 64) for n in range(4097)]
    schedule._shared.clear()
    first = schedule_of(made[0])
    for each in made[:4096]:
        schedule_of(each)
    assert schedule_of(made[0]) is first
    schedule_of(made[4096])
    assert schedule_of(made[0]) is not first


def test_campaigns_of_a_zone_share_its_clock() -> None:
    assert zone_clock("Europe/Paris") is zone_clock("Europe/Paris")
    offset = ISO("2026-01-01T00:00:00+05:30").utcoffset()
    assert offset is not None
    assert fixed_clock(offset).stretch_at(0).offset == 19_800


@pytest.mark.parametrize("t", [-1e15, -62_135_596_800.0, 253_402_300_799.0, 1e15])
def test_instants_beyond_the_calendar_have_a_verdict(t: float) -> None:
    first, last = ISO("0001-01-01T00:00:00Z"), ISO("9999-12-31T00:00:00Z")
    verdict = Schedule(campaign(start=first, end=last, time_zone="Asia/Beirut")).verdict(t)
    assert verdict.since <= t < verdict.until


def test_a_clock_forgets_what_it_read_long_ago() -> None:
    clock = zone_clock("Europe/Paris")
    year = 365 * 86_400
    offsets = [clock.stretch_at(n * year).offset for n in range(300)]
    assert offsets == [clock.stretch_at(n * year).offset for n in range(300)]
    assert len(clock._blocks) <= 64
