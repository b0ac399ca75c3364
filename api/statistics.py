"""GET /statistics and below it: detections and notifications by day, record, hour and reason.

Daily figures are exact, in SQL. Hours, reasons and recent detections are sums that triggers and
connectors keep in Redis.
"""

import csv
import io
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BeforeValidator, Field, TypeAdapter
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import contains_eager, load_only
from starlette.requests import Request
from starlette.responses import StreamingResponse

from api.answers import INT64, Answer, Count, Id, ReasonName, Text, Timestamp, bad_fields
from api.bodies import OwnId
from api.permissions import PREFIX, AuthorizedCaller, may_read
from api.tenancy import find_venue, json_array, of_company
from catalog.database import Database
from catalog.models import Campaign
from catalog.plain_text import for_csv
from catalog.session import with_deleted
from catalog.statistics import (
    WEEK,
    StatisticCursor,
    StatisticFilter,
    StatisticLine,
    day_totals,
    latest_week,
    record_totals,
    statistic_page,
    visit_totals,
)
from rules.model import DayFigures, Reason
from rules.schedule import zone_clock
from rules.visits import VisitKind

router = APIRouter(prefix=f"{PREFIX}/statistics", tags=["analytic"])
Reader = Annotated[AuthorizedCaller, may_read("statistics")]
CSV = "text/csv"
_JSON = "application/json"
_PAGE = 1000
_MOST_DAYS = 366
_MOST_DAYS_IN_REDIS = 31
_RECENT = timedelta(minutes=14)  # and this one

Day = Annotated[date, BeforeValidator(date.fromisoformat)]
First = Annotated[
    Day | None, Query(alias="from", description="First day; default: a week before `to`.")
]
Last = Annotated[Day | None, Query(alias="to", description="Last day; default: today.")]
KindName = Literal["venue", "beacon", "geofence", "nfc", "qrcode", "campaign"]
Kind = Annotated[KindName | None, Query(description="Only this kind of line.")]
VenueOnly = Annotated[
    int | None, Query(alias="venue", ge=1, le=INT64, description="Only this venue, by its id.")
]
RecordOnly = Annotated[
    int | None,
    Query(alias="id", ge=1, le=INT64, description="Only this record of the kind, by its id."),
]
CampaignOnly = Annotated[
    int | None, Query(ge=1, le=INT64, description="Only decisions about this campaign, by its id.")
]
Largest = Annotated[
    int, Query(alias="limit", ge=1, le=100, description="The most records of the answer.")
]
CampaignsOfReason = Annotated[
    int, Query(alias="limit", ge=0, le=100, description="The most campaigns of each reason.")
]


_OF_PLACES: Any = Field(description="Of geofences, NFC tags and QR codes.")


class StatisticLineAnswer(Answer):
    """The figures of a venue, place or campaign on a day. A deleted record keeps its name."""

    day: date
    venue_id: Id
    venue: Text
    kind: KindName
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


class RecordTotalAnswer(SumsAnswer):
    venue_id: Id
    venue: Text
    kind: KindName
    id: Id
    name: Text


class HourFiguresAnswer(Answer):
    hour: Timestamp = Field(description="Its begin, in UTC.")
    detections: Count
    notifications: Count


class CampaignReasonAnswer(Answer):
    venue_id: Id
    venue: str
    id: Id
    name: str
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


class VisitTotalsAnswer(Answer):
    venue_id: Id
    venue: Text
    kind: VisitKind
    id: Id
    name: Text
    visits: Count = Field(description="Those that began on these days.")
    ended: Count = Field(description="How many of them have ended.")
    seconds: Count = Field(description="The sum of the lengths of those that have ended.")
    open: Count = Field(
        description="The visits now: those of these days that began today or yesterday and go on."
    )
    lengths: list[VisitLengthAnswer] = Field(description="Those that have ended by length.")


class BeaconDetectionsAnswer(Answer):
    id: Id
    detections: Id


class RecentDetectionsAnswer(Answer):
    since: Timestamp
    beacons: list[BeaconDetectionsAnswer] = Field(description="Those with any, the most first.")


Lines = Sequence[StatisticLine]
Pages = AsyncIterator[Lines]
_COLUMNS = tuple(StatisticLineAnswer.model_fields)
_LINES = TypeAdapter(list[StatisticLineAnswer])


@router.get(
    "",
    response_model=list[StatisticLineAnswer],
    responses={200: {"content": {CSV: {"schema": {"type": "string"}}}}},
)
async def statistics(
    caller: Reader,
    request: Request,
    first: First = None,
    last: Last = None,
    kind: Kind = None,
    venue: VenueOnly = None,
) -> StreamingResponse:
    """Detections, devices and notifications by day, venue, place and campaign.

    A day is a day of the venue's local time. The devices of a line are distinct, so the numbers of
    several lines cannot be added. Test devices are left out. With `accept: text/csv` the answer is
    CSV.
    """
    days = _days(caller, first, last)
    choice = StatisticFilter(*days, venue_id=venue, kind=kind)
    as_csv = _wants_csv(request.headers.get("accept", ""))
    written = _rows_of if as_csv else _objects
    found = _pages(caller.services.database, caller.company_id, choice)
    pages = (written(lines) async for lines in found)
    # Read before the answer begins, so that an error of SQL can still be answered.
    first_page = await anext(pages, b"")
    return StreamingResponse(
        _sheet(first_page, pages) if as_csv else json_array(first_page, pages),
        media_type=f"{CSV}; charset=utf-8" if as_csv else _JSON,
        headers={"vary": "accept"},
    )


@router.get("/days")
async def statistics_by_day(
    caller: Reader,
    first: First = None,
    last: Last = None,
    kind: Kind = None,
    venue: VenueOnly = None,
    number: RecordOnly = None,
) -> list[DayTotalAnswer]:
    """The sums by day, of all records of a kind (venues by default) or of one record.

    Days without detections and notifications are left out.
    """
    days = _days(caller, first, last)
    choice = StatisticFilter(*days, venue_id=venue, kind=kind or "venue")
    async with caller.services.database.autocommit() as session:
        found = await day_totals(session, caller.company_id, choice, number)
    return [DayTotalAnswer.model_validate(each) for each in found]


@router.get("/totals")
async def statistics_by_record(
    caller: Reader,
    first: First = None,
    last: Last = None,
    kind: Kind = None,
    venue: VenueOnly = None,
    limit: Largest = 20,
) -> list[RecordTotalAnswer]:
    """The sums of each record of a kind (venues by default) over the days.

    The largest come first: campaigns by notifications, the others by detections.
    """
    days = _days(caller, first, last)
    choice = StatisticFilter(*days, venue_id=venue, kind=kind or "venue")
    async with caller.services.database.autocommit() as session:
        found = await record_totals(session, caller.company_id, choice, limit)
    return [RecordTotalAnswer.model_validate(each) for each in found]


@router.get("/visits")
async def visits(
    caller: Reader,
    first: First = None,
    last: Last = None,
    kind: Annotated[VisitKind, Query(description="What was visited.")] = "venue",
    venue: VenueOnly = None,
    limit: Largest = 20,
) -> list[VisitTotalsAnswer]:
    """The visits to each record of a kind, the most visited first, with their lengths.

    A visit counts for the day of its entry, in the venue's local time. Test devices are left out.
    Visits are counted from when the company asks for presence events.
    """
    days = _days(caller, first, last)
    choice = StatisticFilter(*days, venue_id=venue, kind=kind)
    async with caller.services.database.autocommit() as session:
        found = await visit_totals(
            session,
            choice,
            now=caller.services.clock(),
            company_id=caller.company_id,
            limit=limit,
        )
    return [
        VisitTotalsAnswer.model_validate(
            {name: getattr(each, name) for name in VisitTotalsAnswer.model_fields}
            | {"lengths": [{"minutes": m, "visits": n} for m, n in each.lengths.items()]}
        )
        for each in found
    ]


@router.get("/hours")
async def statistics_by_hour(
    caller: Reader, first: First = None, last: Last = None
) -> list[HourFiguresAnswer]:
    """Detections and notifications by the hour in which they were decided and published.

    Hours and days are in UTC; hours without figures are left out. Figures are kept for a month, and
    an answer has at most 31 days. After a crash some detections are counted twice, and test devices
    are counted: the exact figures are the daily ones. A service may be configured to keep none.
    """
    begin, end = _days(caller, first, last, _MOST_DAYS_IN_REDIS)
    days = await caller.services.day_figures(caller.company_id, begin, end)
    return [
        HourFiguresAnswer(
            hour=datetime.combine(day, time(hour), UTC),  # type: ignore[arg-type]
            detections=figures.detections[hour],
            notifications=figures.notifications[hour],
        )
        for day, figures in days.items()
        for hour in sorted(figures.detections.keys() | figures.notifications.keys())
    ]


@router.get("/reasons")
async def statistics_by_reason(
    caller: Reader,
    first: First = None,
    last: Last = None,
    limit: CampaignsOfReason = 20,
    campaign: CampaignOnly = None,
) -> list[ReasonFiguresAnswer]:
    """The triggers' decisions by reason, the most frequent first; also of one campaign alone.

    Counts each campaign at each detection, or once a detection that was refused before its
    campaigns were checked. `granted` was sent, or requested from the company's service. Days are in
    UTC. Figures are kept for a month, and an answer has at most 31 days. After a crash some
    detections are counted twice, and test devices are counted. Some hundred sums by campaign are
    kept for each day; under heavy load they are an estimate.
    """
    begin, end = _days(caller, first, last, _MOST_DAYS_IN_REDIS)
    days = await caller.services.day_figures(caller.company_id, begin, end)
    async with caller.services.database.autocommit() as session:
        return await _reasons(session, caller.company_id, days.values(), limit, campaign)


@router.get("/region/{id}/recent")
async def recent_detections(caller: Reader, number: OwnId) -> RecentDetectionsAnswer:
    """The detections of each beacon of the venue in the last 15 minutes, by the detections' times.

    The figures are some seconds old, and without test devices. They are approximate: some
    detections may be missing under load. The exact figures are the daily ones.
    """
    async with caller.services.database.autocommit() as session:
        venue = await find_venue(session, caller.company_id, number)
    counts = await caller.services.recent_detections(number)
    since = caller.services.clock().replace(second=0, microsecond=0) - _RECENT
    return RecentDetectionsAnswer(
        since=zone_clock(venue.time_zone or "UTC").written(since.timestamp()),
        beacons=[
            BeaconDetectionsAnswer(id=beacon, detections=count)
            for beacon, count in sorted(counts.items(), key=lambda each: (-each[1], each[0]))
        ],
    )


def _days(
    caller: AuthorizedCaller, first: date | None, last: date | None, most: int = _MOST_DAYS
) -> tuple[date, date]:
    """The first and the last of at most so many days. Raises ApiError 400."""
    now = caller.services.clock()
    begin, end = latest_week(now)
    if last is not None:
        begin, end = last - min(WEEK, last - date.min), last
    elif first is not None and (end - first).days >= most:
        end = now.date()
    begin = first or begin
    if not 0 <= (end - begin).days < most:
        raise bad_fields(
            {"from": f"accepted: a day not after `to`, and at most {most} days in all"}
        )
    return begin, end


def _wants_csv(accept: str) -> bool:
    """Whether the client prefers CSV: the first of the two types counts; JSON is the default."""
    named = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    return next((name == CSV for name in named if name in (CSV, _JSON)), False)


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


def _objects(lines: Lines) -> bytes:
    return _LINES.dump_json(_LINES.validate_python(lines))[1:-1]


async def _sheet(first: bytes, pages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield _rows([_COLUMNS]) + first
    async for rows in pages:
        yield rows


def _rows_of(lines: Lines) -> bytes:
    return _rows(for_csv(getattr(line, name) for name in _COLUMNS) for line in lines)


def _rows(rows: Iterable[Sequence[object]]) -> bytes:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(rows)
    return stream.getvalue().encode()


async def _reasons(
    session: AsyncSession,
    company_id: int,
    days: Iterable[DayFigures],
    limit: int,
    campaign: int | None,
) -> list[ReasonFiguresAnswer]:
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
    query = of_company(Campaign, company_id).where(Campaign.id.in_(numbers))
    query = query.options(contains_eager(Campaign.venue), load_only(Campaign.name))
    campaigns = {each.id: each for each in await session.scalars(with_deleted(query))}

    def shown(number: int, count: int) -> CampaignReasonAnswer:
        campaign = campaigns[number]
        venue, name = campaign.venue, campaign.name
        return CampaignReasonAnswer(
            venue_id=venue.id, venue=venue.name, id=number, name=name, count=count
        )

    return [
        ReasonFiguresAnswer(
            reason=reason,
            count=count,
            campaigns=[shown(*each) for each in largest[reason] if each[0] in campaigns],
        )
        for reason, count in reasons.most_common()
    ]
