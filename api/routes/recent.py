"""GET /statistics/region/{id}/recent: the detections of the last quarter of an hour by beacon."""

from datetime import timedelta
from typing import Annotated

import structlog
from fastapi import APIRouter
from pydantic import Field
from redis.exceptions import RedisError
from sqlalchemy import select
from starlette.responses import Response

from api.answers import Answer, Id, Timestamp, answer
from api.errors import not_found, unavailable
from api.openapi.operations import operation
from api.permissions import AuthorizedCaller, may_read
from api.routes.parameters import PREFIX, VenueId
from api.tenancy import of_company
from catalog.models import Venue
from rules.local_time import zone_clock

router = APIRouter(prefix=PREFIX, tags=["analytic"])
_log = structlog.get_logger(__name__)
_SPAN = timedelta(minutes=14)  # and this one


class BeaconDetectionsAnswer(Answer):
    id: Id
    detections: Annotated[int, Field(ge=1)]


class RecentDetectionsAnswer(Answer):
    since: Timestamp
    beacons: list[BeaconDetectionsAnswer] = Field(description="Those with any, the most first.")


@router.get(
    "/statistics/region/{id}/recent", **operation("Recent detections", RecentDetectionsAnswer)
)
async def recent_detections(
    caller: Annotated[AuthorizedCaller, may_read("statistics")], number: VenueId
) -> Response:
    """The detections of each beacon of the venue in the last 15 minutes, by the detections' times.

    The figures are some seconds old, and without test devices. They are approximate: some
    detections may be missing under load. The exact figures are the daily ones.
    """
    services = caller.services
    query = select(Venue.time_zone).where(Venue.id == number, of_company(caller.company_id))
    async with services.database.autocommit() as session:
        venue = (await session.execute(query)).first()
    if venue is None:
        raise not_found("venue")
    try:
        found = await services.recent_detections(number)
    except (RedisError, OSError, TimeoutError) as error:
        _log.error("recent detections cannot be read", error=type(error).__name__)
        raise unavailable("Redis, which counts them, does not answer; try again") from None
    since = services.clock().replace(second=0, microsecond=0) - _SPAN
    written = zone_clock(venue.time_zone or "UTC").written
    listed = sorted(found.items(), key=lambda each: (-each[1], each[0]))
    beacons = [{"id": beacon, "detections": count} for beacon, count in listed]
    return answer({"since": written(since.timestamp()), "beacons": beacons})
