"""The local day of an event, and the rule that says whether a record counts for it."""

from datetime import date
from functools import lru_cache
from typing import NamedTuple

from rules.schedule import DAY, zone_clock

_QUARTER = 900  # seconds; the clocks of all zones have changed at full quarters since 1972


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

    def leaves_trace(self, detected_at: float, now: float) -> bool:
        """Whether a trace row is written.

        A row from before the retention would be deleted at once, and a row far in the future not
        for years.
        """
        return now - self.retention <= detected_at <= now + DAY

    def credible(self, arrived_at: float, now: float) -> float:
        """`arrived_at`, or `now` if no record can have arrived at that time.

        The clock of the producer or the broker was not set.
        """
        return arrived_at if now - self.retention <= arrived_at <= now + self.max_age else now


def local_day(instant: float, time_zone: str | None) -> date:
    """The day of `instant` (epoch seconds) in a time zone, or in UTC without one."""
    return _day_of_quarter(instant // _QUARTER, time_zone)


@lru_cache(maxsize=16_384)
def _day_of_quarter(quarter: float, time_zone: str | None) -> date:
    try:
        clock = zone_clock(time_zone or "UTC")
    except ValueError:  # this host does not know it: one venue must not stop the recorder
        clock = zone_clock("UTC")
    return date.fromisoformat(clock.written(quarter * _QUARTER)[:10])
