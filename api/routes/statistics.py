"""GET /statistics: detections and notifications by day, as JSON or CSV."""

import csv
import io
from collections.abc import AsyncIterator, Callable
from datetime import date, datetime
from typing import Annotated

import orjson
from fastapi import APIRouter, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import StreamingResponse

from api.answers import JSON, Answer, Count, Id, fill_texts
from api.errors import bad_fields
from api.openapi.operations import operation
from api.permissions import AuthorizedCaller, may_read
from api.plain_route import PlainRoute
from api.routes.parameters import PREFIX
from catalog.database import Database
from catalog.fields.values import INT64
from catalog.plain_text import for_csv
from catalog.statistics import (
    STATISTIC_KINDS,
    WEEK,
    StatisticCursor,
    StatisticFilter,
    StatisticLine,
    latest_week,
    statistic_page,
)

router = APIRouter(route_class=PlainRoute, prefix=PREFIX, tags=["analytic"])
CSV = "text/csv"
_PAGE = 1000
_MOST_DAYS = 366


class StatisticLineAnswer(Answer):
    """The figures of a venue, beacon or campaign on a day."""

    day: Annotated[str, Field(json_schema_extra={"format": "date"})]
    venue_id: Id
    venue: str = Field(description="Empty when the record is gone.")
    kind: str = Field(json_schema_extra={"enum": list(STATISTIC_KINDS)})
    id: Id
    name: str = Field(description="Empty when the record is gone.")
    detections: Count
    devices: Count
    notifications: Count


_COLUMNS = tuple(StatisticLineAnswer.model_fields)
_DAY = {"format": "date"}
First = Annotated[
    str | None,
    Query(
        alias="from", json_schema_extra=_DAY, description="First day; default: a week before `to`."
    ),
]
Last = Annotated[
    str | None, Query(alias="to", json_schema_extra=_DAY, description="Last day; default: today.")
]
Kind = Annotated[
    str | None,
    Query(json_schema_extra={"enum": list(STATISTIC_KINDS)}, description="Only this kind of line."),
]
VenueOnly = Annotated[
    int | None, Query(alias="venue", ge=1, le=INT64, description="Only this venue, by its id.")
]
Pages = AsyncIterator[list[StatisticLine]]


@router.get("/statistics", **operation("Statistics", list[StatisticLineAnswer], csv=True))
async def statistics(
    caller: Annotated[AuthorizedCaller, may_read("statistics")],
    request: Request,
    first: First = None,
    last: Last = None,
    kind: Kind = None,
    venue: VenueOnly = None,
) -> StreamingResponse:
    """Detections, devices and notifications by day, venue, beacon and campaign.

    A day is a day of the venue's local time. The devices of a line are distinct, so the numbers of
    several lines cannot be added. Test devices are left out. With `accept: text/csv` the answer is
    CSV.
    """
    choice = chosen_lines(first, last, kind, venue, caller.services.clock())
    pages = _pages(caller.services.database, caller.company_id, choice)
    # Read before the answer begins, so that an error of SQL can still be answered.
    first_page: list[StatisticLine] = await anext(pages, [])
    as_csv = _wants_csv(request.headers.get("accept", ""))
    write: Callable[[list[StatisticLine], Pages], AsyncIterator[bytes]]
    write = _as_csv if as_csv else _as_json
    return StreamingResponse(
        write(first_page, pages),
        media_type=f"{CSV}; charset=utf-8" if as_csv else JSON,
        headers={"vary": "accept"},
    )


def _wants_csv(accept: str) -> bool:
    """Whether the client prefers CSV: the first of the two types counts; JSON is the default."""
    named = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    return next((name == CSV for name in named if name in (CSV, JSON)), False)


def chosen_lines(
    first: str | None, last: str | None, kind: str | None, venue: int | None, now: datetime
) -> StatisticFilter:
    """The selection that the parameters describe. Raises ApiError 400."""
    faults: dict[str, str] = {}
    begin, end = _days_between(first, last, now, _MOST_DAYS, faults)
    if kind is not None and kind not in STATISTIC_KINDS:
        faults["kind"] = f"accepted: {', '.join(STATISTIC_KINDS)}"
    if faults:
        raise bad_fields(faults)
    return StatisticFilter(begin, end, venue=None if venue is None else str(venue), kind=kind)


def chosen_days(first: str | None, last: str | None, now: datetime, most: int) -> tuple[date, date]:
    """The first and the last of at most so many days. Raises ApiError 400."""
    faults: dict[str, str] = {}
    chosen = _days_between(first, last, now, most, faults)
    if faults:
        raise bad_fields(faults)
    return chosen


def _days_between(
    first: str | None, last: str | None, now: datetime, most: int, faults: dict[str, str]
) -> tuple[date, date]:
    begin, end = _days(_day(first, "from", faults), _day(last, "to", faults), now, most)
    if not faults and not 0 <= (end - begin).days < most:
        faults["from"] = f"accepted: a day not after `to`, and at most {most} days in all"
    return begin, end


def _days(first: date | None, last: date | None, now: datetime, most: int) -> tuple[date, date]:
    begin, end = latest_week(now)
    if last is not None:
        begin, end = last - min(WEEK, last - date.min), last
    elif first is not None and (end - first).days >= most:
        end = now.date()
    return first or begin, end


def _day(text: str | None, name: str, faults: dict[str, str]) -> date | None:
    if text is None:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        faults[name] = "accepted: a day as 2026-11-20"
        return None


async def _pages(database: Database, company_id: int, choice: StatisticFilter) -> Pages:
    """The lines page by page, each in its own session: a slow client holds no connection to SQL."""
    after: StatisticCursor | None = None
    while True:
        async with database.autocommit() as session:
            lines = await statistic_page(session, company_id, choice, after, _PAGE)
        if lines:
            yield lines
        if len(lines) < _PAGE:
            return
        last = lines[-1]
        after = StatisticCursor(last.day, last.venue_id, last.kind, last.id)


async def _as_json(begin: list[StatisticLine], pages: Pages) -> AsyncIterator[bytes]:
    yield b"[" + _objects(begin)
    async for lines in pages:
        yield b"," + _objects(lines)
    yield b"]"


def _objects(lines: list[StatisticLine]) -> bytes:
    records = [{name: getattr(line, name) for name in _COLUMNS} for line in lines]
    fill_texts(records, StatisticLineAnswer)
    return orjson.dumps(records)[1:-1]


async def _as_csv(begin: list[StatisticLine], pages: Pages) -> AsyncIterator[bytes]:
    yield _rows([_COLUMNS]) + _rows([_cells(line) for line in begin])
    async for lines in pages:
        yield _rows([_cells(line) for line in lines])


def _cells(line: StatisticLine) -> tuple[object, ...]:
    return tuple(for_csv(getattr(line, name) for name in _COLUMNS))


def _rows(rows: list[tuple[object, ...]]) -> bytes:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(rows)
    return stream.getvalue().encode()
