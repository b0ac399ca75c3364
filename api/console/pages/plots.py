"""Figures by day, as the script that plots them takes them."""

from collections.abc import Iterable, Mapping
from datetime import date, timedelta
from typing import Any

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
    """A series for each name; days without figures have none. Nothing where there is no day."""
    if not found:
        return None
    by_day = {each["day"]: each for each in found}
    first, last = (date.fromisoformat(found[place]["day"]) for place in (0, -1))
    days = [str(first + timedelta(days=number)) for number in range((last - first).days + 1)]
    return {
        "label": words("day"),
        "days": days,
        "series": [
            {
                "label": words(name),
                "values": [by_day[day][name] if day in by_day else 0 for day in days],
            }
            for name in names
        ],
    }
