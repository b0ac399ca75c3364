"""The open hours of a campaign in a week, for a drawing."""

from typing import Any, NamedTuple

from catalog.models import WEEKDAYS

_DAY = 24 * 60


class OpenInterval(NamedTuple):
    """An interval of a day in minutes; `until` is excluded."""

    begin: int
    until: int


def week(campaign: dict[str, Any]) -> list[tuple[str, list[OpenInterval]]]:
    """The open intervals of each weekday.

    Hours that run over midnight belong to the weekday on which they begin, so their second part is
    shown on the next day.
    """
    begin, until = _minute(campaign["start_time"]), _minute(campaign["end_time"])
    if begin is None or until is None:
        return []
    days = []
    for place, day in enumerate(WEEKDAYS):
        intervals = []
        if begin > until and campaign[WEEKDAYS[place - 1]] and until:
            intervals.append(OpenInterval(0, until))
        if campaign[day]:
            whole = begin == until
            last = until if begin < until else _DAY
            intervals.append(OpenInterval(0, _DAY) if whole else OpenInterval(begin, last))
        days.append((day, intervals))
    return days


def _minute(text: str) -> int | None:
    hours, _, minutes = text.partition(":")
    if not (text.isascii() and hours.isdigit() and minutes.isdigit() and len(text) <= 5):
        return None
    minute = int(hours) * 60 + int(minutes)
    return minute if minute <= _DAY else None
