"""Statistics of a period beside the period before it: charts, the table of records, CSV files."""

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any, NamedTuple, get_args

from fastapi import APIRouter
from starlette.responses import Response

from api.answers import ApiError
from api.console.context import Context, PageContext
from api.console.rendering import csv_file
from rules.visits import VisitKind

router = APIRouter()
KINDS = ("campaign", "beacon", "geofence", "nfc", "qrcode", "venue")
PERIODS = ("7", "30", "90", "month", "last_month")
_FIGURES = ("detections", "device_days", "notifications")
_COLUMNS = ("name", "venue", *_FIGURES)
_MOST = 100
_DAY = timedelta(days=1)
_EARLIEST = date(3, 1, 1)  # there are days before the days before it
Span = dict[str, str]


@router.get("/statistics")
async def show(context: Context) -> Response:
    """Show the chosen figures. Faults are shown beside the fields."""
    choice, refusal = await _choice(context), None
    try:
        shown = await _shown(context, choice)
    except ApiError as error:
        refusal, shown = error, {"figures": [], "visits": []}
    return context.form_page(
        "statistics.html",
        "statistics",
        choice,
        refusal,
        period=context.query("period") or ("" if context.query("from") else PERIODS[0]),
        periods=PERIODS,
        kinds=KINDS,
        venues=await context.venues(),
        most=_MOST,
        **shown,
    )


async def _shown(context: PageContext, choice: dict[str, str]) -> dict[str, Any]:
    kind, span = choice["kind"], {name: choice[name] for name in ("from", "to")}
    found = await context.get("/statistics/totals", limit=_MOST, **choice)
    earlier, venue = before(span), choice["venue"]
    days, past = [
        await context.get("/statistics/days", venue=venue, **each) for each in (span, earlier)
    ]
    visited = choice | {"kind": kind if kind in get_args(VisitKind) else "venue"}
    return {
        "earlier": earlier,
        "figures": figures_of(days, span, past),
        "found": [_with_all_places(each) for each in found],
        "visits": await context.get("/statistics/visits", limit=_MOST, **visited),
    }


@router.get("/statistics.csv")
async def table_file(context: Context) -> Response:
    """The table of the page as a file."""
    choice = await _choice(context)
    found = await context.get("/statistics/totals", limit=_MOST, **choice)
    rows = [[_with_all_places(each)[name] for name in _COLUMNS] for each in found]
    return csv_file(f"{choice['kind']}s-{choice['from']}-{choice['to']}", [_COLUMNS, *rows])


async def _choice(context: PageContext) -> dict[str, str]:
    """What was chosen: the kind, the venue, and the days, by a period's name or as they are."""
    today = (await context.local_now()).date()
    last_month = today.replace(day=1) - _DAY
    span = {name: context.query(name) or day for name, day in last_days(today, 7).items()}
    match context.query("period"):
        case "month":
            span = last_days(today, today.day)
        case "last_month":
            span = last_days(last_month, last_month.day)
        case days if days in PERIODS:
            span = last_days(today, int(days))
    kind = context.query("kind")
    return {"kind": kind if kind in KINDS else KINDS[0], "venue": context.query("venue"), **span}


def last_days(today: date, days: int) -> Span:
    """The query for the last `days` days, today included."""
    return {"from": str(today - (days - 1) * _DAY), "to": str(today)}


def before(span: Span) -> Span:
    """The days directly before others, as many as those."""
    first, last = (max(date.fromisoformat(span[each]), _EARLIEST) for each in ("from", "to"))
    return last_days(first - _DAY, (last - first).days + 1)


class Figure(NamedTuple):
    """A series of figures by day; `before` is the sum of the period before it."""

    name: str
    labels: list[str]
    values: list[int]
    before: int | None


def figures_of(
    found: list[dict[str, Any]], span: Span, past: list[dict[str, Any]] | None = None
) -> list[Figure]:
    """A series of each figure for the days of a span; days without figures have 0."""
    first, last = (date.fromisoformat(span[name]) for name in ("from", "to"))
    days = [str(first + number * _DAY) for number in range((last - first).days + 1)]
    by_day = {each["day"]: _with_all_places(each) for each in found}
    return [
        Figure(
            name,
            days,
            [by_day[day][name] if day in by_day else 0 for day in days],
            None if past is None else sum(_with_all_places(each)[name] for each in past),
        )
        for name in _FIGURES
    ]


def _with_all_places(each: Mapping[str, Any]) -> dict[str, Any]:
    """Sums whose detections are those of all kinds of places."""
    return {**each, "detections": each["detections"] + each["place_detections"]}
