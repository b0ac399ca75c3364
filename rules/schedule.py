"""Determines when a campaign is open by its dates, weekdays and hours, and when a company is quiet,
in local wall time.

The conversion always goes from the instant to the wall time. Between two changes of a zone's UTC
offset it is an addition: a LocalClock finds the stretches of constant offset, a block of time at a
time, once for all campaigns of the zone.
"""

from collections.abc import Hashable, Iterable, Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from itertools import pairwise
from math import floor, inf
from typing import NamedTuple
from zoneinfo import ZoneInfo

from rules.model import CampaignSnapshot, QuietHours, Reason

DAY = 86_400

_WALL_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # wall time
_BLOCK = 32 * DAY
# No zone in the IANA data changes its offset and changes it back within less than three days.
_STEP = DAY
_MOST_BLOCKS = 64
# The first and last seconds that datetime can express, and the instants for which every offset can.
# Beyond them the nearest offset applies.
_FIRST_WALL, _LAST_WALL = -62_135_596_800, 253_402_300_799
_FIRST, _LAST = _FIRST_WALL + 2 * DAY, _LAST_WALL - 2 * DAY


class Stretch(NamedTuple):
    """Instants from `since` up to, not including, `until` with one UTC offset; all in seconds."""

    since: int
    until: int
    offset: int


class LocalClock:
    """The UTC offsets of one time zone, remembered for a bounded number of blocks."""

    __slots__ = ("_blocks", "_tz")

    def __init__(self, tz: tzinfo) -> None:
        self._tz = tz
        self._blocks: dict[int, tuple[Stretch, ...]] = {}

    def stretch_at(self, instant: int) -> Stretch:
        """A stretch of constant offset around `instant`, not always the longest one."""
        block = instant // _BLOCK
        stretches = self._blocks.get(block) or self._survey(block)
        return next(stretch for stretch in stretches if instant < stretch.until)

    def written(self, instant: float) -> str:
        """The instant in local time, with its offset: 2026-11-20T10:00:00+0100. Before year 1 and
        after year 9999 the first or the last second of them."""
        second = floor(min(max(instant, _FIRST_WALL - DAY), _LAST_WALL + DAY))
        offset = self.stretch_at(second).offset
        shown = min(max(second + offset, _FIRST_WALL), _LAST_WALL)
        wall = _WALL_EPOCH + timedelta(seconds=shown)
        sign, minutes = "-" if offset < 0 else "+", abs(offset) // 60
        return f"{wall.isoformat()}{sign}{minutes // 60:02}{minutes % 60:02}"

    def last_second_before(self, wall: int) -> int:
        """The last instant at which the wall clock shows less than `wall`.

        `wall` is in seconds since 1970-01-01 00:00 as if the wall clock were in UTC.
        """
        stretch = self.stretch_at(wall + DAY)
        while (last := min(stretch.until, wall - stretch.offset) - 1) < stretch.since:
            stretch = self.stretch_at(stretch.since - 1)
        return last

    def _survey(self, block: int) -> tuple[Stretch, ...]:
        begin = block * _BLOCK
        days = range(begin, begin + _BLOCK, _STEP)
        changes = [change for day in days for change in self._changes(day, day + _STEP)]
        edges = sorted({begin, *changes, begin + _BLOCK})
        found = tuple(Stretch(a, b, self._offset_at(a)) for a, b in pairwise(edges))
        if len(self._blocks) >= _MOST_BLOCKS:
            self._blocks.clear()
        self._blocks[block] = found
        return found

    def _changes(self, a: int, b: int) -> Iterator[int]:
        if self._offset_at(a) == self._offset_at(b):
            return
        if b - a == 1:
            yield b
            return
        middle = (a + b) // 2
        yield from self._changes(a, middle)
        yield from self._changes(middle, b)

    def _offset_at(self, instant: int) -> int:
        known = min(max(instant, _FIRST), _LAST)
        offset = datetime.fromtimestamp(known, self._tz).utcoffset()
        return 0 if offset is None else offset // timedelta(seconds=1)


@lru_cache(maxsize=1024)
def zone_clock(name: str) -> LocalClock:
    """The clock of an IANA time zone. Raises ValueError if no zone has that name."""
    try:
        return LocalClock(ZoneInfo(name))
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(f"no IANA time zone is named {name!r}") from error


@lru_cache(maxsize=1024)
def fixed_clock(offset: timedelta) -> LocalClock:
    """The clock of a constant UTC offset."""
    return LocalClock(timezone(offset))


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_ORDINAL = _EPOCH.toordinal()
_EPOCH_WEEKDAY = _EPOCH.weekday()
# The moment that is compared with the dates differs from the instant by at most this.
_MARGIN = 3 * DAY
_MOST_SHARED = 4096


class Verdict(NamedTuple):
    """Why a campaign is closed; `reason` is None if it is open.

    The verdict holds from `since` up to, not including, `until`.
    """

    reason: Reason | None
    since: float
    until: float


class Piece(NamedTuple):
    """A part of the local day, in seconds from midnight.

    `inside` says whether it is within the campaign's hours, `carried` whether its window opened on
    the day before and runs over midnight.
    """

    begin: int
    until: int
    inside: bool
    carried: bool


class Occasion(NamedTuple):
    """The values that a schedule checks at an instant.

    They hold from `since` up to, not including, `until`. `moment` (epoch s) is compared with the
    dates. `day` (days since 1970-01-01) gives the weekday. `carried` says that `day` is the day
    before the instant's, because the window opened on that day. `second_of_day` is the local time,
    and `inside` says whether it is within the campaign's hours.
    """

    moment: int
    day: int
    second_of_day: int
    inside: bool
    carried: bool
    since: float
    until: float

    @property
    def weekday(self) -> int:
        """0 Monday to 6 Sunday."""
        return (self.day + _EPOCH_WEEKDAY) % 7


class Schedule:
    """The compiled schedule of a campaign, which says whether the campaign is open at an instant.

    `start` and `end` (epoch s) are its first and last second. `clock` converts to its local time.
    """

    def __init__(self, campaign: CampaignSnapshot) -> None:
        """Raises ValueError for an unknown time zone and for dates without an offset."""
        self._active = campaign.active
        self._weekdays = campaign.weekdays
        self._pieces = _pieces(campaign.start_minute * 60, campaign.end_minute * 60)
        self.clock = _clock(campaign)
        self.start = _instant(campaign.start)
        self.end = _last_second(campaign.end, self.clock)
        self._over_at = max(self.start, self.end) + _MARGIN

    def verdict(self, t: float) -> Verdict:
        """Whether the campaign is open at `t` (epoch seconds), else the first check that fails."""
        second = floor(t)
        if not self._active:
            return Verdict(Reason.INACTIVE, -inf, inf)
        if second < self.start - _MARGIN:
            return Verdict(Reason.NOT_STARTED, -inf, self.start - _MARGIN)
        if second >= self._over_at:
            return Verdict(Reason.ENDED, self._over_at, inf)
        occasion = self.occasion(second)
        failed = (reason for reason, passed in self.checks(occasion) if not passed)
        return Verdict(next(failed, None), occasion.since, occasion.until)

    def occasion(self, second: int) -> Occasion:
        """The values that the checks compare in that second (epoch s)."""
        day, of_day, piece, since, until = _local_piece(self.clock, self._pieces, second)
        if piece.carried:
            moment = self.clock.last_second_before(day * DAY)
            return Occasion(moment, day - 1, of_day, piece.inside, True, since, until)
        for edge in (self.start, self.end + 1):
            since, until = (since, min(until, edge)) if second < edge else (max(since, edge), until)
        return Occasion(second, day, of_day, piece.inside, False, since, until)

    def checks(self, occasion: Occasion) -> tuple[tuple[Reason, bool], ...]:
        """Every check in order, and whether it passes; the first that fails is the reason."""
        return (
            (Reason.INACTIVE, self._active),
            (Reason.NOT_STARTED, occasion.moment >= self.start),
            (Reason.ENDED, occasion.moment <= self.end),
            (Reason.WRONG_WEEKDAY, bool(self._weekdays >> occasion.weekday & 1)),
            (Reason.OUTSIDE_HOURS, occasion.inside),
        )


class QuietSchedule:
    """The quiet hours of a company in one time zone."""

    def __init__(self, hours: QuietHours, clock: LocalClock) -> None:
        self.clock = clock
        self._weekdays = hours.weekdays
        self._pieces = _pieces(hours.start_minute * 60, hours.end_minute * 60)

    def verdict(self, t: float) -> Verdict:
        """QUIET_HOURS as the reason, if `t` (epoch seconds) is within them."""
        day, _, piece, since, until = _local_piece(self.clock, self._pieces, floor(t))
        weekday = (day - piece.carried + _EPOCH_WEEKDAY) % 7
        is_quiet = piece.inside and self._weekdays >> weekday & 1
        return Verdict(Reason.QUIET_HOURS if is_quiet else None, since, until)

    def next_change(self, t: float) -> float:
        """When the answer at `t` changes (epoch s); infinity if it does not within two weeks."""
        reason, _, until = self.verdict(t)
        while self.verdict(until).reason is reason and until < t + 14 * DAY:
            until = self.verdict(until).until
        return until if until < t + 14 * DAY else inf


def quiet_schedule(hours: QuietHours | None, zones: Iterable[str | None]) -> QuietSchedule | None:
    """The quiet hours in the first of the zones that is known; None without hours or zone."""
    if hours is None:
        return None
    return next((found for zone in zones if zone and (found := _quiet_schedule(hours, zone))), None)


@lru_cache(maxsize=4096)
def _quiet_schedule(hours: QuietHours, zone: str) -> QuietSchedule | None:
    try:
        return QuietSchedule(hours, zone_clock(zone))
    except ValueError:  # whatever a device calls its zone
        return None


def _local_piece(
    clock: LocalClock, pieces: tuple[Piece, ...], second: int
) -> tuple[int, int, Piece, int, int]:
    """The local day, the second of it and its piece, which lasts from the fourth to the fifth."""
    stretch = clock.stretch_at(second)
    day, of_day = divmod(second + stretch.offset, DAY)
    piece = next(piece for piece in pieces if of_day < piece.until)
    midnight = day * DAY - stretch.offset
    since = max(stretch.since, midnight + piece.begin)
    return day, of_day, piece, since, min(stretch.until, midnight + piece.until)


_shared: dict[Hashable, Schedule] = {}


def schedule_of(campaign: CampaignSnapshot) -> Schedule:
    """The schedule of a campaign. Campaigns with equal hours and dates share one, because a company
    may have thousands of them. Raises ValueError, see Schedule.
    """
    start, end = campaign.start, campaign.end
    key = (
        campaign.active,
        campaign.weekdays,
        campaign.start_minute,
        campaign.end_minute,
        campaign.time_zone,
        start,
        end,
        # Datetimes are equal whatever their offsets, which give the local time.
        start.utcoffset(),
        end.utcoffset(),
    )
    schedule = _shared.get(key)
    if schedule is None:
        if len(_shared) >= _MOST_SHARED:
            _shared.clear()
        schedule = _shared[key] = Schedule(campaign)
    return schedule


@lru_cache(maxsize=_MOST_SHARED)
def _pieces(start: int, end: int) -> tuple[Piece, ...]:
    """The pieces of a day in order. A piece may be empty: no second lies in it."""
    if start == end:
        return (Piece(0, DAY, True, False),)
    if start < end:
        return (
            Piece(0, start, False, False),
            Piece(start, end, True, False),
            Piece(end, DAY, False, False),
        )
    return (
        Piece(0, end, True, True),
        Piece(end, start, False, False),
        Piece(start, DAY, True, False),
    )


def _clock(campaign: CampaignSnapshot) -> LocalClock:
    offset = campaign.start.utcoffset()
    if offset is None or campaign.end.utcoffset() is None:
        raise ValueError(f"campaign {campaign.id}: start and end need a UTC offset")
    return fixed_clock(offset) if campaign.time_zone is None else zone_clock(campaign.time_zone)


def _instant(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(seconds=1)


def _last_second(end: datetime, clock: LocalClock) -> int:
    """The last second of a campaign. An end at 00:00:00 as written includes that whole day."""
    if (end.hour, end.minute, end.second) != (0, 0, 0):
        return _instant(end)
    return clock.last_second_before((end.toordinal() - _EPOCH_ORDINAL + 1) * DAY)
