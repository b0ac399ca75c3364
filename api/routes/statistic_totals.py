"""GET /statistics/days and /statistics/totals: sums of the daily statistics."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from api.answers import Answer, Count, Id, Record, answer, fill_texts
from api.openapi.operations import operation
from api.permissions import AuthorizedCaller, may_read
from api.plain_route import PlainRoute
from api.routes.parameters import PREFIX
from api.routes.statistics import First, Kind, Last, VenueOnly, chosen_lines
from catalog.fields.values import INT64
from catalog.statistic_totals import day_totals, record_totals
from catalog.statistics import STATISTIC_KINDS

router = APIRouter(route_class=PlainRoute, prefix=PREFIX, tags=["analytic"])
Reader = Annotated[AuthorizedCaller, may_read("statistics")]
_VENUE = "venue"
Visits = Annotated[
    Count,
    Field(description="The sum over the days of the distinct devices of each day and record."),
]
RecordOnly = Annotated[
    int | None,
    Query(alias="id", ge=1, le=INT64, description="Only this record of the kind, by its id."),
]
Largest = Annotated[
    int, Query(alias="limit", ge=1, le=100, description="The most records of the answer.")
]


class DayTotalAnswer(Answer):
    day: Annotated[str, Field(json_schema_extra={"format": "date"})]
    detections: Count
    visits: Visits
    notifications: Count


class RecordTotalAnswer(Answer):
    venue_id: Id
    venue: str = Field(description="Empty when the record is gone.")
    kind: str = Field(json_schema_extra={"enum": list(STATISTIC_KINDS)})
    id: Id
    name: str = Field(description="Empty when the record is gone.")
    detections: Count
    visits: Visits
    notifications: Count


@router.get("/statistics/days", **operation("Statistics by day", list[DayTotalAnswer]))
async def statistics_by_day(
    caller: Reader,
    first: First = None,
    last: Last = None,
    kind: Kind = None,
    venue: VenueOnly = None,
    number: RecordOnly = None,
) -> Response:
    """The sums by day, of all records of a kind (venues by default) or of one record.

    Days without detections and notifications are left out.
    """
    choice = chosen_lines(first, last, kind or _VENUE, venue, caller.services.clock())
    async with caller.services.database.autocommit() as session:
        found = await day_totals(session, caller.company_id, choice, number)
    return answer([each._asdict() for each in found])


@router.get("/statistics/totals", **operation("Statistics by record", list[RecordTotalAnswer]))
async def statistics_by_record(
    caller: Reader,
    first: First = None,
    last: Last = None,
    kind: Kind = None,
    venue: VenueOnly = None,
    limit: Largest = 20,
) -> Response:
    """The sums of each record of a kind (venues by default) over the days.

    The largest come first: campaigns by notifications, the others by detections.
    """
    choice = chosen_lines(first, last, kind or _VENUE, venue, caller.services.clock())
    async with caller.services.database.autocommit() as session:
        found = await record_totals(session, caller.company_id, choice, limit)
    records: list[Record] = [each._asdict() for each in found]
    fill_texts(records, RecordTotalAnswer)
    return answer(records)
