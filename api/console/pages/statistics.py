"""Statistics of a period beside the period before it: charts, the table of records, CSV files."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple, get_args

from starlette.responses import Response

from api.console.context import PageContext
from api.console.interface import call_interface, faults_of, message_of
from api.console.rendering import csv_file
from api.console.texts import display_zone
from rules.visits import VisitKind

KINDS = ("campaign", "beacon", "geofence", "nfc", "qrcode", "venue")
PERIODS = ("7", "30", "90", "month", "last_month")
_FIGURES = ("detections", "device_days", "notifications")
_COLUMNS = ("name", "venue", *_FIGURES)
_MOST = 100
_DAY, _HOUR = timedelta(days=1), timedelta(hours=1)
_DAYS_OF_HEAT = 28  # whole weeks, as far back as hours are kept
Span = dict[str, str]


async def show(context: PageContext) -> Response:
    """Show the chosen figures. Faults are shown beside the fields."""
    now = await context.local_now()
    span, kind, venue = _span(context, now.date()), _kind(context), context.query("venue")
    records = await context.call(
        "GET", "/statistics/totals", kind=kind, venue=venue, limit=_MOST, **span
    )
    good = records.is_success
    earlier = before(span) if good else span
    days, past = [
        await context.get("/statistics/days", venue=venue, **each) if good else []
        for each in (span, earlier)
    ]
    visits = await context.call(
        "GET",
        "/statistics/visits",
        kind=kind if kind in get_args(VisitKind) else "venue",
        venue=venue,
        limit=_MOST,
        **span,
    )
    return context.page(
        "statistics.html",
        records.status_code,
        span=span,
        earlier=earlier,
        kind=kind,
        kinds=KINDS,
        periods=PERIODS,
        period=context.query("period") or ("" if context.query("from") else PERIODS[0]),
        venue=venue,
        venues=await context.venues(),
        faults=faults_of(records),
        message=message_of(records),
        figures=figures_of(days, span, past) if good else [],
        found=[_with_all_places(each) for each in records.json()] if good else [],
        held=await _held_back(context, span) if good and kind == "campaign" else {},
        most=_MOST,
        visits=visits.json() if visits.is_success else [],
    )


async def hours_of_week(context: PageContext) -> Response:
    """Show when notifications are sent: a weekday a line, an hour a column."""
    now = await context.local_now()
    span = last_days(context.now.date(), _DAYS_OF_HEAT)
    counts = [[0] * 24 for _ in range(7)]
    for each in await context.get("/statistics/hours", **span):
        at = datetime.fromisoformat(each["hour"]).astimezone(now.tzinfo)
        counts[at.weekday()][at.hour] += each["notifications"]
    most, zone = max(map(max, counts)), display_zone(f"{now:%Y-%m-%dT%H:%M:%S%z}")
    return context.page("statistics.html#heat", counts=counts, most=most, span=span, zone=zone)


async def table_file(context: PageContext) -> Response:
    """The table of the page as a file."""
    span = _span(context, (await context.local_now()).date())
    found = await context.get(
        "/statistics/totals",
        kind=_kind(context),
        venue=context.query("venue"),
        limit=_MOST,
        **span,
    )
    rows = [[_with_all_places(each)[name] for name in _COLUMNS] for each in found]
    return csv_file(f"{_kind(context)}s-{span['from']}-{span['to']}", [_COLUMNS, *rows])


async def daily_file(context: PageContext) -> Response:
    """The CSV of the operation, a line for each day and record, as a file."""
    span = _span(context, (await context.local_now()).date())
    query = {"kind": _kind(context), "venue": context.query("venue"), **span}
    found = await call_interface(
        context.request, context.session, "GET", "/statistics", query=query, accept="text/csv"
    )
    headers = {"content-type": found.headers["content-type"]}
    if found.is_success:
        headers["content-disposition"] = 'attachment; filename="statistics.csv"'
    return Response(found.content, found.status_code, headers)


def _kind(context: PageContext) -> str:
    return context.query("kind") if context.query("kind") in KINDS else KINDS[0]


def _span(context: PageContext, today: date) -> Span:
    """The first and the last day that were chosen, by a period's name or as they are."""
    month = today.replace(day=1)
    period = context.query("period")
    if period == "month":
        return {"from": str(month), "to": str(today)}
    if period == "last_month":
        last = month - _DAY
        return {"from": str(last.replace(day=1)), "to": str(last)}
    length = int(period) if period in PERIODS else 7
    chosen = last_days(today, length)
    if period not in PERIODS:
        chosen |= {name: context.query(name) for name in chosen if context.query(name)}
    return chosen


def last_days(today: date, days: int) -> Span:
    """The query for the last `days` days, today included."""
    return {"from": str(today - (days - 1) * _DAY), "to": str(today)}


def before(span: Span) -> Span:
    """The days directly before others, as many as those."""
    first, last = (date.fromisoformat(span[name]) for name in ("from", "to"))
    return last_days(first - _DAY, (last - first).days + 1)


async def _held_back(context: PageContext, span: Span) -> dict[int, list[tuple[str, int]]]:
    """The refusals of each campaign by reason, the most first; none for more than a month."""
    reply = await context.call("GET", "/statistics/reasons", limit=_MOST, **span)
    held: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
    for each in reply.json() if reply.is_success else []:
        if each["reason"] != "granted":
            for one in each["campaigns"]:
                held[one["id"]].append((each["reason"], one["count"]))
    for found in held.values():
        found.sort(key=lambda each: -each[1])
    return held


class Figure(NamedTuple):
    """A series of figures by day or by hour; `before` is the sum of the period before it."""

    name: str
    labels: list[str]
    values: list[int]
    before: int | None = None

    @property
    def total(self) -> int:
        """The sum of the values."""
        return sum(self.values)

    @property
    def change(self) -> str:
        """The change against the period before, as +12 %; empty if there is nothing to compare."""
        return f"{(self.total - self.before) / self.before:+.0%}" if self.before else ""


def figures_of(
    found: list[dict[str, Any]], span: Span, past: list[dict[str, Any]] | None = None
) -> list[Figure]:
    """A series of each figure for the days of a span; days without figures have 0."""
    first, last = (date.fromisoformat(span[name]) for name in ("from", "to"))
    days = [str(first + number * _DAY) for number in range((last - first).days + 1)]
    by_day = {each["day"]: _with_all_places(each) for each in found}
    earlier = None if past is None else [_with_all_places(each) for each in past]
    return [
        Figure(
            name,
            days,
            [by_day.get(day, {}).get(name, 0) for day in days],
            None if earlier is None else sum(each[name] for each in earlier),
        )
        for name in _FIGURES
    ]


def _with_all_places(each: Mapping[str, Any]) -> dict[str, Any]:
    """Sums whose detections are those of all kinds of places."""
    return {**each, "detections": each["detections"] + each["place_detections"]}


def first_hour(now: datetime) -> datetime:
    """The hour of UTC in which yesterday began, in the local time of `now`."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0) - _DAY
    return midnight.astimezone(UTC).replace(minute=0)


def hourly_figures(found: Iterable[dict[str, Any]], now: datetime) -> list[Figure]:
    """The series from `first_hour` to `now`, all hours with the offset of `now`."""
    begin = first_hour(now)
    by_hour = {datetime.fromisoformat(each["hour"]): each for each in found}
    hours = [begin + number * _HOUR for number in range(int((now - begin) / _HOUR) + 1)]
    labels = [f"{hour.astimezone(now.tzinfo):%Y-%m-%d %H:%M}" for hour in hours]
    return [
        Figure(name, labels, [by_hour.get(hour, {}).get(name, 0) for hour in hours])
        for name in ("detections", "notifications")
    ]


PAGES = (
    ("GET", "/statistics", show),
    ("GET", "/statistics/week", hours_of_week),
    ("GET", "/statistics/table", table_file),
    ("GET", "/statistics.csv", daily_file),
)
