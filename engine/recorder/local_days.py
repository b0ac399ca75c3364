"""Determines the local day of an event: the date at its venue."""

from datetime import date, timedelta
from functools import lru_cache
from typing import NamedTuple

import structlog

from rules.local_time import LocalClock, Stretch, zone_clock

log = structlog.get_logger(__name__)

_DAY = 86_400
_EPOCH = date(1970, 1, 1)
_FIRST = (date.min - _EPOCH).days
_LAST = (date.max - _EPOCH).days


class DayRule(NamedTuple):
    """Decides for which day a record counts, if for any. All instants are epoch seconds.

    `arrived_at` is the record's own timestamp, `now` SQL's clock. A record that arrives within
    `max_age` seconds of its detection counts for the day of the detection. A later record counts
    only if its detection was on the day on which the record arrived. So a device with a wrong clock
    adds figures to no other day. `retention` (seconds) is how long a record may have waited for a
    recorder, and how long traces are kept.
    """

    max_age: float
    retention: float

    def day_of(
        self, detected_at: float, arrived_at: float, now: float, time_zone: str | None
    ) -> date | None:
        """The day, or None."""
        day = local_day(detected_at, time_zone)
        arrived_at = self._credible(arrived_at, now)
        if abs(detected_at - arrived_at) <= self.max_age or day == local_day(arrived_at, time_zone):
            return day
        return None

    def leaves_trace(self, detected_at: float, arrived_at: float, now: float) -> bool:
        """Whether a trace row is written.

        A row from before the retention would be deleted at once, and a row far in the future not
        for years.
        """
        latest = self._credible(arrived_at, now) + _DAY
        return now - self.retention - _DAY <= detected_at <= latest

    def _credible(self, arrived_at: float, now: float) -> float:
        """`arrived_at`, or `now` if no record can have arrived at that time.

        The clock of the producer or the broker was not set.
        """
        return arrived_at if now - self.retention <= arrived_at <= now + self.max_age else now


def local_day(instant: float, time_zone: str | None) -> date:
    """The day of `instant` (epoch seconds) in a time zone, or in UTC without one."""
    second = int(instant // 1)
    clock = None if time_zone is None else _known_clock(time_zone)
    offset = 0 if clock is None else clock.stretch_at(second).offset
    return _day((second + offset) // _DAY)


class LocalDay(NamedTuple):
    """A day, and instants of it: from `since` up to, not including, `until` (epoch seconds)."""

    since: int
    until: int
    day: date


def local_day_around(instant: float, time_zone: str | None) -> LocalDay:
    """The day of `instant`, as by local_day, with the instants around it that are of this day. A
    day on which the UTC offset changes is returned in parts."""
    second = int(instant // 1)
    clock = None if time_zone is None else _known_clock(time_zone)
    stretch = (
        Stretch(second - _DAY, second + _DAY, 0) if clock is None else clock.stretch_at(second)
    )
    number = (second + stretch.offset) // _DAY
    begin = number * _DAY - stretch.offset
    return LocalDay(max(begin, stretch.since), min(begin + _DAY, stretch.until), _day(number))


@lru_cache(maxsize=1024)
def _known_clock(time_zone: str) -> LocalClock | None:
    """The local time, or None if this host lacks the zone: one venue must not stop the recorder."""
    try:
        return zone_clock(time_zone)
    except ValueError:
        log.warning("this host lacks a time zone: days of its venues are in UTC", zone=time_zone)
        return None


@lru_cache(maxsize=1024)
def _day(number: int) -> date:
    return _EPOCH + timedelta(days=min(max(number, _FIRST), _LAST))
