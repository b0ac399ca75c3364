"""GET /statistics and below it: detections and notifications by day, record and reason.

Daily figures are exact, in SQL. Reasons and recent detections are sums that triggers and recorders
keep in Redis.
"""

import re
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable
from datetime import date, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from pydantic import BeforeValidator, Field
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.requests import Request
from starlette.responses import StreamingResponse

from api.answers import Answer, Count, Id, ReasonName, Record, Text, Timestamp, bad_fields
from api.bodies import FromOne, OwnId
from api.permissions import PREFIX, Caller, may_read, services_of
from api.tenancy import find, json_array, of_company, streamed
from catalog.database import Database
from catalog.models import Campaign, Venue
from catalog.plain_text import csv_text
from catalog.session import with_deleted
from catalog.statistics import (
    StatisticFilter,
    StatisticKind,
    StatisticLine,
    day_totals,
    days_of,
    record_totals,
    statistic_lines,
    visit_totals,
)
from rules.model import DayFigures, Reason
from rules.schedule import zone_clock
from rules.visits import VisitKind

router = APIRouter(prefix=f"{PREFIX}/statistics", tags=["analytic"])
Reader = Annotated[Caller, may_read("statistics")]
_CSV = "text/csv"
_PAGE = 1000
_MOST_DAYS = 366
_RECENT = timedelta(minutes=14)  # and this one


def _day(text: str) -> date:
    if not re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", text):  # the other forms of ISO 8601
        raise ValueError("accepted: a day as 2026-11-20")
    return date.fromisoformat(text)


Day = Annotated[date, BeforeValidator(_day)]
First = Annotated[
    Day | None, Query(alias="from", description="First day; default: a week before `to`.")
]
Last = Annotated[Day | None, Query(alias="to", description="Last day; default: today.")]


def _days(request: Request, first: First = None, last: Last = None) -> tuple[date, date]:
    """The first and the last day of a query, both included."""
    begin, end = days_of(services_of(request).clock(), first, last)
    if not 0 <= (end - begin).days <= _MOST_DAYS:
        message = f"accepted: a day not after `to`, and at most {_MOST_DAYS} days before it"
        raise bad_fields({"from": message})
    return begin, end


SomeDays = Annotated[tuple[date, date], Depends(_days)]
OneKind = Annotated[StatisticKind, Query(description="The kind of record.")]
VenueOnly = Annotated[
    FromOne | None, Query(alias="venue", description="Only this venue, by its id.")
]
Largest = Annotated[
    int, Query(alias="limit", ge=1, le=100, description="The most records of the answer.")
]
_OF_PLACES: Any = Field(description="Of geofences, NFC tags and QR codes.")


class _OfVenueAnswer(Answer):
    venue_id: Id
    venue: Text
    id: Id
    name: Text


class StatisticLineAnswer(Answer):
    """The figures of a venue, place or campaign on a day. A deleted record keeps its name."""

    day: date
    venue_id: Id
    venue: Text
    kind: StatisticKind
    id: Id
    name: Text
    detections: Count
    devices: Count
    notifications: Count
    place_detections: Count = _OF_PLACES


class SumsAnswer(Answer):
    detections: Count
    place_detections: Count = _OF_PLACES
    device_days: Count = Field(
        description="The sum over the days of the distinct devices of each day and record."
    )
    notifications: Count


class DayTotalAnswer(SumsAnswer):
    day: date


class RecordTotalAnswer(SumsAnswer, _OfVenueAnswer):
    kind: StatisticKind


class CampaignReasonAnswer(_OfVenueAnswer):
    count: Count


class ReasonFiguresAnswer(Answer):
    reason: ReasonName
    count: Count
    campaigns: list[CampaignReasonAnswer] = Field(
        description="The largest first; empty if the reason applies before campaigns are checked."
    )


class VisitLengthAnswer(Answer):
    minutes: Count = Field(description="They took so long or longer, up to the next.")
    visits: Count


class VisitTotalsAnswer(_OfVenueAnswer):
    kind: VisitKind
    visits: Count = Field(description="Those that began on these days.")
    ended: Count = Field(description="How many of them have ended.")
    seconds: Count = Field(description="The sum of the lengths of those that have ended.")
    open: Count = Field(
        description="The visits now: those of these days that began today or yesterday and go on."
    )
    lengths: Annotated[
        list[VisitLengthAnswer],
        BeforeValidator(lambda by: [{"minutes": n, "visits": by[n]} for n in by]),
    ] = Field(description="Those that have ended by length.")


class BeaconDetectionsAnswer(Answer):
    id: Id
    detections: Id


class RecentDetectionsAnswer(Answer):
    since: Timestamp
    beacons: list[BeaconDetectionsAnswer] = Field(description="Those with any, the most first.")


@router.get(
    "",
    response_model=list[StatisticLineAnswer],
    responses={200: {"content": {_CSV: {"schema": {"type": "string"}}}}},
)
async def statistics(
    caller: Reader,
    request: Request,
    days: SomeDays,
    kind: Annotated[StatisticKind | None, Query(description="Only this kind of line.")] = None,
    venue: VenueOnly = None,
) -> StreamingResponse:
    """Detections, devices and notifications by day, venue, place and campaign.

    A day is a day of the venue's local time. The devices of a line are distinct, so the numbers of
    several lines cannot be added. Test devices are left out. With `accept: text/csv` the answer is
    CSV.
    """
    pages = _pages(caller.services.database, StatisticFilter(*days, caller.company_id, venue, kind))
    accept = request.headers.get("accept", "").lower()
    if _CSV in accept.partition("application/json")[0]:  # the first of the two counts
        return await streamed(_sheet(pages), f"{_CSV}; charset=utf-8", vary="accept")
    return await streamed(json_array(pages, StatisticLineAnswer), "application/json", vary="accept")


@router.get("/days", response_model=list[DayTotalAnswer])
async def statistics_by_day(
    caller: Reader,
    days: SomeDays,
    kind: OneKind = "venue",
    venue: VenueOnly = None,
    number: Annotated[
        FromOne | None, Query(alias="id", description="Only this record of the kind, by its id.")
    ] = None,
) -> Any:
    """The sums by day, of all records of a kind or of one record.

    Days without detections and notifications are left out.
    """
    choice = StatisticFilter(*days, caller.company_id, venue, kind)
    async with caller.services.database.read() as session:
        return await day_totals(session, choice, number)


@router.get("/totals", response_model=list[RecordTotalAnswer])
async def statistics_by_record(
    caller: Reader,
    days: SomeDays,
    kind: OneKind = "venue",
    venue: VenueOnly = None,
    limit: Largest = 20,
) -> Any:
    """The sums of each record of a kind over the days.

    The largest come first: campaigns by notifications, the others by detections.
    """
    choice = StatisticFilter(*days, caller.company_id, venue, kind)
    async with caller.services.database.read() as session:
        return await record_totals(session, choice, limit)


@router.get("/visits", response_model=list[VisitTotalsAnswer])
async def visits(
    caller: Reader,
    days: SomeDays,
    kind: Annotated[VisitKind, Query(description="What was visited.")] = "venue",
    venue: VenueOnly = None,
    limit: Largest = 20,
) -> Any:
    """The visits to each record of a kind, the most visited first, with their lengths.

    A visit counts for the day of its entry, in the venue's local time. Test devices are left out.
    Visits are counted from when the company asks for presence, or has a campaign on visits.
    """
    choice, now = StatisticFilter(*days, caller.company_id, venue, kind), caller.services.clock()
    async with caller.services.database.read() as session:
        return await visit_totals(session, choice, now=now, limit=limit)


@router.get("/reasons", response_model=list[ReasonFiguresAnswer])
async def statistics_by_reason(
    caller: Reader,
    days: SomeDays,
    limit: Annotated[
        int, Query(ge=0, le=100, description="The most campaigns of each reason.")
    ] = 20,
    campaign: Annotated[
        FromOne | None, Query(description="Only decisions about this campaign, by its id.")
    ] = None,
) -> Any:
    """The triggers' decisions by reason, the most frequent first; also of one campaign alone.

    Counts each campaign at each detection, or once a detection that was refused before its
    campaigns were checked. `granted` was sent, or requested from the company's service. Days are in
    UTC. Figures are kept for a month. After a crash some
    detections are counted twice, and test devices are counted. Some hundred sums by campaign are
    kept for each day; under heavy load they are an estimate.
    """
    found = await caller.services.day_figures(caller.company_id, *days)
    async with caller.services.database.read() as session:
        return await _reasons(session, caller.company_id, found.values(), limit, campaign)


@router.get("/region/{id}/recent", response_model=RecentDetectionsAnswer)
async def recent_detections(caller: Reader, number: OwnId) -> Any:
    """The detections of each beacon of the venue in the last 15 minutes, by the detections' times.

    The figures are some seconds old, and without test devices. They are approximate: some
    detections may be missing under load. The exact figures are the daily ones.
    """
    async with caller.services.database.read() as session:
        venue = await find(session, of_company(Venue, caller.company_id), number)
    counts = await caller.services.recent_detections(number)
    since = caller.services.clock().replace(second=0, microsecond=0) - _RECENT
    largest = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    return {
        "since": zone_clock(venue.time_zone or "UTC").written(since.timestamp()),
        "beacons": [{"id": beacon, "detections": count} for beacon, count in largest],
    }


async def _pages(database: Database, choice: StatisticFilter) -> AsyncIterator[list[StatisticLine]]:
    """The lines page by page, each in its own session: a slow client holds no connection to SQL."""
    after: StatisticLine | None = None
    while True:
        async with database.read() as session:
            lines = [line async for line in statistic_lines(session, choice, after, _PAGE)]
        yield lines
        if len(lines) < _PAGE:
            return
        after = lines[-1]


async def _sheet(pages: AsyncIterator[list[StatisticLine]]) -> AsyncIterator[bytes]:
    columns = list(StatisticLineAnswer.model_fields)
    rows: list[Any] = [columns]
    async for lines in pages:
        rows += ([getattr(line, name) for name in columns] for line in lines)
        yield csv_text(rows).encode()
        rows = []


async def _reasons(
    session: AsyncSession,
    company_id: int,
    days: Iterable[DayFigures],
    limit: int,
    campaign: int | None,
) -> list[Record]:
    """The reasons, the most frequent first, each with `limit` campaigns."""
    reasons = Counter[Reason]()
    by_reason: defaultdict[Reason, Counter[int]] = defaultdict(Counter)
    for figures in days:
        reasons.update(figures.reasons)
        for (number, reason), count in figures.campaigns.items():
            if campaign in (None, number):
                by_reason[reason][number] += count
    if campaign is not None:
        reasons = Counter({reason: found.total() for reason, found in by_reason.items()})
    largest = {reason: by_reason[reason].most_common(limit) for reason in reasons}
    numbers = {number for listed in largest.values() for number, _ in listed}
    of_venue = (Venue.id.label("venue_id"), Venue.name.label("venue"))
    query = select(*of_venue, Campaign.id, Campaign.name).join(Campaign.venue)
    query = query.where(Venue.company_id == company_id, Campaign.id.in_(numbers))
    named = {row.id: row._asdict() for row in await session.execute(with_deleted(query))}
    return [
        {
            "reason": reason,
            "count": count,
            "campaigns": [named[n] | {"count": of} for n, of in largest[reason] if n in named],
        }
        for reason, count in reasons.most_common()
    ]
