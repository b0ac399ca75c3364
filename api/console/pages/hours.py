"""The hours at which a campaign sends, as a week to look at."""

from typing import Any, NamedTuple

from catalog.models import WEEKDAYS

_DAY = 24 * 60


class OpenStretch(NamedTuple):
    """Minutes of a day, `until` not included."""

    begin: int
    until: int


def week(campaign: dict[str, Any]) -> list[tuple[str, list[OpenStretch]]]:
    """For each weekday when it sends. A window that passes midnight belongs to the day on which
    it opens, and goes on in the next one."""
    begin, until = _minute(campaign["start_time"]), _minute(campaign["end_time"])
    if begin is None or until is None:
        return []
    days = []
    for place, day in enumerate(WEEKDAYS):
        stretches = []
        if begin > until and campaign[WEEKDAYS[place - 1]] and until:
            stretches.append(OpenStretch(0, until))
        if campaign[day]:
            whole = begin == until
            last = until if begin < until else _DAY
            stretches.append(OpenStretch(0, _DAY) if whole else OpenStretch(begin, last))
        days.append((day, stretches))
    return days


def _minute(text: str) -> int | None:
    hours, _, minutes = text.partition(":")
    if not (text.isascii() and hours.isdigit() and minutes.isdigit() and len(text) <= 5):
        return None
    minute = int(hours) * 60 + int(minutes)
    return minute if minute <= _DAY else None
