"""Statistics by record and by day, as a table, a plot and a CSV file; data of plots."""

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, get_args

from starlette.responses import Response

from api.console.context import PageContext
from api.console.texts import Translations, parse_time
from rules.visits import VisitKind

_KINDS = ("campaign", "beacon", "geofence", "nfc", "qrcode", "venue")
_MOST = 100


async def show(context: PageContext) -> Response:
    """Show the chosen figures. Faults are shown beside the fields."""
    chosen = _chosen(context)
    interface = context.interface
    query = {"from": chosen["from"], "to": chosen["to"], "venue": chosen["venue"]}
    kind = chosen["kind"]
    records = await interface.call(
        "GET", "/statistics/totals", query=query | {"kind": kind, "limit": _MOST}
    )
    by_day = await interface.call("GET", "/statistics/days", query=query)
    visited = kind if kind in get_args(VisitKind) else "venue"
    visits = await interface.call(
        "GET", "/statistics/visits", query=query | {"kind": visited, "limit": _MOST}
    )
    days = by_day.body if by_day.is_success else []
    plot = daily_plot(days, ("detections", "device_days", "notifications"), context.texts)
    return context.page(
        "statistics.html",
        200 if records.is_success else records.status,
        chosen=chosen,
        faults=records.fields,
        message=records.message,
        found=records.body if records.is_success else [],
        most=_MOST,
        visits=visits.body if visits.is_success else [],
        venues=await context.venues(),
        plot=plot,
    )


async def csv_file(context: PageContext) -> Response:
    """The CSV of the operation, as a file."""
    return await context.interface.file(
        "/statistics", _chosen(context), accept="text/csv", name="statistics.csv"
    )


def _chosen(context: PageContext) -> dict[str, str]:
    kind = context.query("kind")
    return {
        "from": context.query("from"),
        "to": context.query("to"),
        "venue": context.query("venue"),
        "kind": kind if kind in _KINDS else _KINDS[0],
    }


def last_days(context: PageContext, days: int) -> dict[str, str]:
    """The query for the last `days` days. It includes tomorrow, which has begun in the east."""
    today = context.now.date()
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
    series = _series(names, [by_day.get(day, {}) for day in days], texts)
    return {"label": texts("day"), "days": days, "series": series}


def _series(
    names: Iterable[str], figures: list[dict[str, Any]], texts: Translations
) -> list[dict[str, Any]]:
    return [
        {"name": name, "label": texts(name), "values": [each.get(name, 0) for each in figures]}
        for name in names
    ]


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
        "series": _series(names, [by_hour.get(hour, {}) for hour in hours], texts),
    }


PAGES = (("GET", "/statistics", show), ("GET", "/statistics.csv", csv_file))
