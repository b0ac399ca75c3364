"""Converts figures by day and by hour into the data of the plotting script."""

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

from api.console.context import PageContext
from api.console.times import parse_time
from api.console.translations import Translations
from api.permissions import services_of


def last_days(context: PageContext, days: int) -> dict[str, str]:
    """The query for the last `days` days. It includes tomorrow, which has begun in the east."""
    today = services_of(context.request).clock().date()
    return {"from": str(today - timedelta(days=days - 1)), "to": str(today + timedelta(days=1))}


def daily_plot(
    found: list[dict[str, Any]], names: Iterable[str], texts: Translations
) -> Mapping[str, Any] | None:
    """A series for each name; days without figures have 0. None if there is no day.

    A single day is shown with the week before it, because its axis would be labelled by years.
    """
    if not found:
        return None
    by_day = {each["day"]: each for each in found}
    first, last = (date.fromisoformat(found[place]["day"]) for place in (0, -1))
    if first == last:
        first -= timedelta(days=6)
    days = [str(first + timedelta(days=number)) for number in range((last - first).days + 1)]
    return {
        "label": texts("day"),
        "days": days,
        "series": [
            {
                "name": name,
                "label": texts(name),
                "values": [by_day[day][name] if day in by_day else 0 for day in days],
            }
            for name in names
        ],
    }


_HOUR = timedelta(hours=1)


def first_hour(now: datetime) -> datetime:
    """The hour of UTC in which yesterday began, in the local time of `now`."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
    return midnight.astimezone(UTC).replace(minute=0)


def hourly_plot(
    found: list[dict[str, Any]], names: Iterable[str], texts: Translations, now: datetime
) -> Mapping[str, Any] | None:
    """A series for each name, from `first_hour` to `now`. None if there is no hour with figures.

    All hours are shown with the offset of `now`.
    """
    begin = first_hour(now)
    by_hour = {parse_time(each["hour"]): each for each in found}
    passed = int((now - begin) / _HOUR) + 1
    hours = [begin + number * _HOUR for number in range(passed)]
    if by_hour.keys().isdisjoint(hours):
        return None
    return {
        "label": texts("hour"),
        "hours": [f"{hour.astimezone(now.tzinfo):%Y-%m-%dT%H:%M}Z" for hour in hours],
        "series": [
            {
                "name": name,
                "label": texts(name),
                "values": [by_hour[hour][name] if hour in by_hour else 0 for hour in hours],
            }
            for name in names
        ],
    }
