"""The clock of a zone and the edges of a schedule, to the second."""

from datetime import UTC, datetime, timedelta, tzinfo
from math import inf
from zoneinfo import ZoneInfo

import pytest

from rules.model import Reason
from rules.schedule import DAY, LocalClock, Schedule, Stretch, Verdict, fixed_clock, zone_clock
from tests.rules.records import campaign, epoch

MADRID = ZoneInfo("Europe/Madrid")
SPRING = int(epoch("2026-03-29T01:00:00+00:00"))  # 02:00 becomes 03:00
AUTUMN = int(epoch("2026-10-25T01:00:00+00:00"))  # 03:00 becomes 02:00
ON_LAST_DAY = int(epoch("2022-10-30T01:00:00+00:00"))  # 03:00 becomes 02:00; it ends a block
HOUR = 3600
MARGIN = 3 * DAY  # around its dates a schedule uses local time


def wall(text: str) -> int:
    """What the wall clock shows, in seconds as if it were in UTC."""
    return int(epoch(f"{text}+00:00"))


def shown_by(moment: datetime) -> float:
    """The wall time of a moment, in seconds as if it were in UTC."""
    return moment.replace(tzinfo=UTC).timestamp()


class CountingZone(tzinfo):
    """A zone an hour ahead of UTC that counts its calls."""

    def __init__(self) -> None:
        self.requested = 0

    def utcoffset(self, _moment: datetime | None) -> timedelta:
        self.requested += 1
        return timedelta(hours=1)

    def dst(self, _moment: datetime | None) -> None:
        return None

    def tzname(self, _moment: datetime | None) -> None:
        return None

    def fromutc(self, moment: datetime) -> datetime:
        return moment + timedelta(hours=1)


class NoZone(CountingZone):
    """A zone that knows no offset."""

    def utcoffset(self, _moment: datetime | None) -> None:  # type: ignore[override]
        return None


class SpringingZone(CountingZone):
    """A zone whose clock goes from UTC to an hour ahead one second after the epoch."""

    def utcoffset(self, moment: datetime | None) -> timedelta:
        return timedelta(hours=1 if moment and shown_by(moment) > HOUR else 0)

    def fromutc(self, moment: datetime) -> datetime:
        return moment + timedelta(hours=1 if shown_by(moment) >= 1 else 0)


@pytest.mark.parametrize(
    ("change", "before", "after"), [(SPRING, 1, 2), (AUTUMN, 2, 1), (ON_LAST_DAY, 2, 1)]
)
def test_a_stretch_ends_where_the_offset_changes(change: int, before: int, after: int) -> None:
    clock = LocalClock(MADRID)
    last, first = clock.stretch_at(change - 1), clock.stretch_at(change)
    assert (last.until, last.offset) == (change, before * HOUR)
    assert (first.since, first.offset) == (change, after * HOUR)


def test_a_stretch_without_changes_is_one_block() -> None:
    stretch = fixed_clock(timedelta(hours=1)).stretch_at(0)
    assert stretch == Stretch(0, 32 * DAY, HOUR)
    assert fixed_clock(timedelta(hours=1)).stretch_at(-1) == Stretch(-32 * DAY, 0, HOUR)


def test_a_block_is_read_once() -> None:
    zone = CountingZone()
    clock = LocalClock(zone)
    clock.stretch_at(5 * DAY)
    read = zone.requested
    clock.stretch_at(6 * DAY)
    assert 0 < zone.requested == read
    clock.stretch_at(40 * DAY)
    assert zone.requested == 2 * read


def test_at_most_64_blocks_are_remembered() -> None:
    zone = CountingZone()
    clock = LocalClock(zone)
    for block in range(64):
        clock.stretch_at(block * 32 * DAY)
    read = zone.requested
    clock.stretch_at(0)
    assert zone.requested == read, "64 are remembered"
    clock.stretch_at(64 * 32 * DAY)
    read = zone.requested
    clock.stretch_at(0)
    assert zone.requested > read, "the 65th makes room"


def test_a_zone_without_an_offset_is_utc() -> None:
    assert LocalClock(NoZone()).stretch_at(0).offset == 0


@pytest.mark.parametrize(
    ("shown", "last"),
    [
        ("2026-03-29T01:00:00", SPRING - HOUR - 1),
        ("2026-03-29T02:00:00", SPRING - 1),
        ("2026-03-29T02:30:00", SPRING - 1),
        ("2026-03-29T03:00:00", SPRING - 1),
        ("2026-03-29T03:00:01", SPRING),
        ("2026-03-29T03:00:02", SPRING + 1),
        ("2026-10-25T02:00:00", AUTUMN - HOUR - 1),
        ("2026-10-25T02:00:01", AUTUMN),
        ("2026-10-25T02:30:00", AUTUMN + HOUR // 2 - 1),
        ("2026-10-25T03:00:00", AUTUMN + HOUR - 1),
        ("2026-10-26T00:00:00", AUTUMN + 22 * HOUR - 1),
    ],
)
def test_the_last_second_before_a_wall_time(shown: str, last: int) -> None:
    assert LocalClock(MADRID).last_second_before(wall(shown)) == last


@pytest.mark.parametrize(("shown", "last"), [(0, -1), (1, 0), (2, 0), (HOUR + 1, 0), (HOUR + 2, 1)])
def test_a_stretch_of_one_second_is_not_passed_over(shown: int, last: int) -> None:
    clock = LocalClock(SpringingZone())
    assert clock.stretch_at(0) == Stretch(0, 1, 0), "between the begin of a block and the change"
    assert clock.last_second_before(shown) == last


def test_dates_end_a_verdict_to_the_second() -> None:
    start, end = datetime(2026, 6, 1, 9, tzinfo=UTC), datetime(2026, 6, 1, 17, tzinfo=UTC)
    schedule = Schedule(campaign(start=start, end=end))
    first, last = int(start.timestamp()), int(end.timestamp())
    midnight = first - 9 * HOUR
    assert schedule.verdict(first - 1) == (Reason.NOT_STARTED, midnight, first)
    assert schedule.verdict(first) == schedule.verdict(last) == (None, first, last + 1)
    assert schedule.verdict(last + 0.999) == (None, first, last + 1)
    assert schedule.verdict(last + 1) == (Reason.ENDED, last + 1, midnight + DAY)


def test_far_from_its_dates_a_verdict_holds_for_ever() -> None:
    start, end = datetime(2026, 6, 1, 9, tzinfo=UTC), datetime(2026, 6, 1, 17, tzinfo=UTC)
    schedule = Schedule(campaign(start=start, end=end))
    before, after = int(start.timestamp()) - MARGIN, int(end.timestamp()) + MARGIN
    assert schedule.verdict(before - 1) == (Reason.NOT_STARTED, -inf, before)
    assert schedule.verdict(after) == (Reason.ENDED, after, inf)
    for t in (before, after - 1):
        reason, since, until = schedule.verdict(t)
        assert reason is (Reason.NOT_STARTED if t == before else Reason.ENDED)
        assert -inf < since <= t < until < inf


def test_an_end_before_the_start_ends_after_both() -> None:
    start, end = datetime(2026, 6, 10, tzinfo=UTC), datetime(2026, 6, 1, 1, tzinfo=UTC)
    schedule = Schedule(campaign(start=start, end=end))
    after = int(start.timestamp()) + MARGIN
    assert schedule.verdict(after) == (Reason.ENDED, after, inf)
    assert schedule.verdict(after - 1).until < inf


def test_an_inactive_campaign_never_changes() -> None:
    assert Schedule(campaign(active=False)).verdict(0) == Verdict(Reason.INACTIVE, -inf, inf)


@pytest.mark.parametrize("written", [(0, 0, 1), (0, 1, 0), (1, 0, 0)])
def test_only_midnight_itself_stands_for_the_whole_day(written: tuple[int, int, int]) -> None:
    end = datetime(2026, 6, 1, *written, tzinfo=UTC)
    schedule = Schedule(campaign(end=end))
    assert schedule.verdict(end.timestamp()).reason is None
    assert schedule.verdict(end.timestamp() + 1).reason is Reason.ENDED


@pytest.mark.parametrize("naive", ["start", "end"])
def test_either_date_without_an_offset_is_refused(naive: str) -> None:
    with pytest.raises(ValueError, match=r"^campaign 7: start and end need a UTC offset$"):
        Schedule(campaign(id=7, **{naive: datetime(2026, 6, 1)}))  # noqa: DTZ001


@pytest.mark.parametrize(
    ("zone", "instant", "shown"),
    [
        ("UTC", -62_135_596_800, "0001-01-01T00:00:00+0000"),
        ("UTC", 253_402_300_799, "9999-12-31T23:59:59+0000"),
        ("Pacific/Kiritimati", 253_402_300_799, "9999-12-31T23:59:59+1400"),
        ("Pacific/Kiritimati", 253_402_250_000, "9999-12-31T23:53:20+1400"),
        ("America/New_York", -62_135_596_800, "0001-01-01T00:00:00-0456"),
        ("America/New_York", 253_402_300_799, "9999-12-31T18:59:59-0500"),
        ("Europe/Paris", 1e18, "9999-12-31T23:59:59+0100"),
        ("Europe/Paris", -inf, "0001-01-01T00:00:00+0009"),
    ],
)
def test_a_clock_shows_the_first_and_the_last_year(zone: str, instant: float, shown: str) -> None:
    assert zone_clock(zone).written(instant) == shown
