"""The day on which something happened, on the wall clock of its venue."""

from datetime import date, timedelta
from functools import lru_cache

from rules.local_time import zone_clock

_DAY = 86_400
_EPOCH = date(1970, 1, 1)
_FIRST = (date.min - _EPOCH).days
_LAST = (date.max - _EPOCH).days


def local_day(instant: float, time_zone: str | None) -> date:
    """The day of `instant` (epoch seconds) in a time zone, or in UTC without one."""
    second = int(instant // 1)
    offset = 0 if time_zone is None else zone_clock(time_zone).stretch_at(second).offset
    return _day((second + offset) // _DAY)


@lru_cache(maxsize=1024)
def _day(number: int) -> date:
    return _EPOCH + timedelta(days=min(max(number, _FIRST), _LAST))
