"""The local day of an event, and the rule that says whether a record counts for it."""

from datetime import date, timedelta
from functools import lru_cache
from typing import NamedTuple

import structlog

from rules.schedule import LocalClock, zone_clock

log = structlog.get_logger(__name__)

DAY = 86_400
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
        arrived_at = self.credible(arrived_at, now)
        if abs(detected_at - arrived_at) <= self.max_age or day == local_day(arrived_at, time_zone):
            return day
        return None

    def leaves_trace(self, detected_at: float, arrived_at: float, now: float) -> bool:
        """Whether a trace row is written.

        A row from before the retention would be deleted at once, and a row far in the future not
        for years.
        """
        return now - self.retention - DAY <= detected_at <= self.credible(arrived_at, now) + DAY

    def credible(self, arrived_at: float, now: float) -> float:
        """`arrived_at`, or `now` if no record can have arrived at that time.

        The clock of the producer or the broker was not set.
        """
        return arrived_at if now - self.retention <= arrived_at <= now + self.max_age else now


def local_day(instant: float, time_zone: str | None) -> date:
    """The day of `instant` (epoch seconds) in a time zone, or in UTC without one."""
    return local_day_around(instant, time_zone).day


class LocalDay(NamedTuple):
    """A day, and instants of it: from `since` up to, not including, `until` (epoch seconds)."""

    since: float
    until: float
    day: date


def local_day_around(instant: float, time_zone: str | None) -> LocalDay:
    """The day of `instant` with the instants around it that are of this day.

    A day on which the UTC offset changes is returned in parts.
    """
    second = int(instant // 1)
    clock = None if time_zone is None else _known_clock(time_zone)
    stretch = None if clock is None else clock.stretch_at(second)
    offset = 0 if stretch is None else stretch.offset
    number = (second + offset) // DAY
    since, until = number * DAY - offset, (number + 1) * DAY - offset
    if stretch is not None:
        since, until = max(since, stretch.since), min(until, stretch.until)
    return LocalDay(since, until, _EPOCH + timedelta(days=min(max(number, _FIRST), _LAST)))


@lru_cache(maxsize=1024)
def _known_clock(time_zone: str) -> LocalClock | None:
    """The local time, or None if this host lacks the zone: one venue must not stop the recorder."""
    try:
        return zone_clock(time_zone)
    except ValueError:
        log.warning("this host lacks a time zone: days of its venues are in UTC", zone=time_zone)
        return None
