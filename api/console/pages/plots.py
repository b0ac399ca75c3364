"""Figures by day and by hour, as the script that plots them takes them."""

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

from api.console.moments import read_moment
from api.console.visit import Visit
from api.console.words import PageWords
from api.permissions import services_of


def last_days(visit: Visit, days: int) -> dict[str, str]:
    """So many days up to today, as the statistics take them. In the east tomorrow has begun."""
    today = services_of(visit.request).clock().date()
    return {"from": str(today - timedelta(days=days - 1)), "to": str(today + timedelta(days=1))}


def plot_of(
    found: list[dict[str, Any]], names: Iterable[str], words: PageWords
) -> Mapping[str, Any] | None:
    """A series for each name; days without figures have 0. A day alone, whose axis would be one of
    years, has the week before it. Nothing where there is no day."""
    if not found:
        return None
    by_day = {each["day"]: each for each in found}
    first, last = (date.fromisoformat(found[place]["day"]) for place in (0, -1))
    if first == last:
        first -= timedelta(days=6)
    days = [str(first + timedelta(days=number)) for number in range((last - first).days + 1)]
    return {
        "label": words("day"),
        "days": days,
        "series": [
            {
                "name": name,
                "label": words(name),
                "values": [by_day[day][name] if day in by_day else 0 for day in days],
            }
            for name in names
        ],
    }


_HOUR = timedelta(hours=1)


def first_hour(now: datetime) -> datetime:
    """The hour, as UTC has hours, in which yesterday began by the clocks of `now`."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
    return midnight.astimezone(UTC).replace(minute=0)


def plot_of_hours(
    found: list[dict[str, Any]], names: Iterable[str], words: PageWords, now: datetime
) -> Mapping[str, Any] | None:
    """A series for each name, from `first_hour` to `now`, by the clocks of `now`; its offset holds
    for all hours. Nothing where there is no hour."""
    begin = first_hour(now)
    by_hour = {read_moment(each["hour"]): each for each in found}
    passed = int((now - begin) / _HOUR) + 1
    hours = [begin + number * _HOUR for number in range(passed)]
    if by_hour.keys().isdisjoint(hours):
        return None
    return {
        "label": words("hour"),
        "hours": [f"{hour.astimezone(now.tzinfo):%Y-%m-%dT%H:%M}Z" for hour in hours],
        "series": [
            {
                "name": name,
                "label": words(name),
                "values": [by_hour[hour][name] if hour in by_hour else 0 for hour in hours],
            }
            for name in names
        ],
    }
