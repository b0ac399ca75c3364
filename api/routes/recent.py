"""GET /statistics/region/{id}/recent: the detections of the last quarter of an hour by beacon."""

from datetime import timedelta
from typing import Annotated

import orjson
import structlog
from fastapi import APIRouter
from pydantic import Field
from redis.exceptions import RedisError
from starlette.responses import Response

from api.answers import Answer, Id, Timestamp, answer
from api.errors import unavailable
from api.openapi.operations import operation
from api.permissions import AuthorizedCaller, may_read
from api.plain_route import PlainRoute
from api.routes.parameters import PREFIX, VenueId
from api.tenancy import require_venue
from catalog.reading import read
from rules.local_time import zone_clock

router = APIRouter(route_class=PlainRoute, prefix=PREFIX, tags=["analytic"])
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
    """How many detections each beacon of the venue had in the last 15 minutes, by their own clock.

    Some seconds old, and without test devices. It is for a look at a venue: what cannot be written
    in time is left out, and the exact figures are those of the days.
    """
    services, company = caller.services, caller.company_id
    venue = await read(services.database, lambda reader: require_venue(reader, company, number))
    try:
        counted = await services.venue_counts.counts(
            company, number, services.recent_detections, services.clock
        )
    except (RedisError, OSError, TimeoutError) as error:
        _log.error("recent detections cannot be read", error=type(error).__name__)
        raise unavailable("Redis, which counts them, does not answer; try again") from None
    since = counted.at.replace(second=0, microsecond=0) - _SPAN
    written = zone_clock(venue["time_zone"] or "UTC").written
    beacons = orjson.Fragment(counted.json)
    return answer({"since": written(since.timestamp()), "beacons": beacons})
