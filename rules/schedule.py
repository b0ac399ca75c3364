"""When a campaign is open: its dates, weekdays and hours, in local wall time."""

from datetime import UTC, datetime, timedelta
from math import floor, inf
from typing import NamedTuple

from rules.local_time import DAY, LocalClock, fixed_clock, zone_clock
from rules.model import CampaignSnapshot, Reason

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_ORDINAL = _EPOCH.toordinal()
_EPOCH_WEEKDAY = _EPOCH.weekday()
# The moment that dates are held against is never further from the instant than this.
_MARGIN = 3 * DAY


class Verdict(NamedTuple):
    """`reason` is None when open; constant from `since` up to, not including, `until`."""

    reason: Reason | None
    since: float
    until: float


class Piece(NamedTuple):
    """A part of the local day in seconds: inside the hours or not, and whether its window
    was carried over midnight from the day before."""

    begin: int
    until: int
    inside: bool
    carried: bool


class Schedule:
    """A campaign compiled for the question whether it is open at an instant."""

    __slots__ = (
        "_active",
        "_asleep",
        "_clock",
        "_end",
        "_over_at",
        "_pieces",
        "_start",
        "_weekdays",
    )

    def __init__(self, campaign: CampaignSnapshot) -> None:
        """Raises ValueError for a time zone that is not known and for dates without offset."""
        self._active = campaign.active
        self._asleep = campaign.asleep
        self._weekdays = campaign.weekdays
        self._pieces = _pieces(campaign.start_minute * 60, campaign.end_minute * 60)
        self._clock = _clock(campaign)
        self._start = _instant(campaign.start)
        self._end = _last_second(campaign.end, self._clock)
        self._over_at = max(self._start, self._end) + _MARGIN

    def verdict(self, t: float) -> Verdict:
        """Whether the campaign is open at `t` (epoch seconds), else the first check that fails."""
        second = floor(t)
        if not self._active:
            return Verdict(Reason.INACTIVE, -inf, inf)
        if second < self._start - _MARGIN:
            return Verdict(Reason.NOT_STARTED, -inf, self._start - _MARGIN)
        if second >= self._over_at:
            return Verdict(Reason.ENDED, self._over_at, inf)
        return self._by_local_time(second)

    def _by_local_time(self, second: int) -> Verdict:
        stretch = self._clock.stretch_at(second)
        day, of_day = divmod(second + stretch.offset, DAY)
        piece = next(piece for piece in self._pieces if of_day < piece.until)
        midnight = day * DAY - stretch.offset
        since = max(stretch.since, midnight + piece.begin)
        until = min(stretch.until, midnight + piece.until)
        if piece.carried:
            moment = self._clock.last_second_before(day * DAY)
            return Verdict(self._reason(moment, day - 1, piece.inside), since, until)
        for edge in (self._start, self._end + 1):
            since, until = (since, min(until, edge)) if second < edge else (max(since, edge), until)
        return Verdict(self._reason(second, day, piece.inside), since, until)

    def _reason(self, moment: int, day: int, inside: bool) -> Reason | None:
        if moment < self._start:
            return Reason.NOT_STARTED
        if moment > self._end:
            return Reason.ENDED
        if not self._weekdays >> (day + _EPOCH_WEEKDAY) % 7 & 1:
            return Reason.WRONG_WEEKDAY
        if not inside:
            return Reason.OUTSIDE_HOURS
        # Open by its schedule, and without content: an edit of the venue is under way.
        return Reason.INACTIVE if self._asleep else None


def _pieces(start: int, end: int) -> tuple[Piece, ...]:
    """The pieces of a day in order; an empty one is never the first that ends behind a second."""
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
    """An end at 00:00:00, in the offset it was written in, stands for that whole day."""
    if (end.hour, end.minute, end.second) != (0, 0, 0):
        return _instant(end)
    return clock.last_second_before((end.toordinal() - _EPOCH_ORDINAL + 1) * DAY)
