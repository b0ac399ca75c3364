"""GET /statistics/hours and /statistics/reasons: sums of the triggers' decisions.

Triggers and connectors write these sums to Redis. (Daily statistics are in SQL.)
"""

from datetime import date
from typing import Annotated

import structlog
from fastapi import APIRouter, Query
from redis.exceptions import RedisError
from starlette.responses import Response

from api.answers import answer
from api.errors import unavailable
from api.openapi.operations import operation
from api.permissions import AuthorizedCaller, may_read
from api.plain_route import PlainRoute
from api.records.figures import (
    HourFiguresAnswer,
    ReasonFiguresAnswer,
    shown_hours,
    shown_reasons,
)
from api.routes.parameters import PREFIX
from api.routes.statistics import First, Last, chosen_days
from rules.day_figures import DayFigures

router = APIRouter(route_class=PlainRoute, prefix=PREFIX, tags=["analytic"])
_log = structlog.get_logger(__name__)
_MOST_DAYS = 31
Reader = Annotated[AuthorizedCaller, may_read("statistics")]
CampaignsOfReason = Annotated[
    int, Query(alias="limit", ge=0, le=100, description="The most campaigns of each reason.")
]


@router.get("/statistics/hours", **operation("Statistics by hour", list[HourFiguresAnswer]))
async def statistics_by_hour(caller: Reader, first: First = None, last: Last = None) -> Response:
    """Detections and notifications by the hour in which they were decided and published.

    Hours and days are in UTC; hours without figures are left out. Figures are kept for a month, and
    an answer has at most 31 days. After a crash some detections are counted twice, and test devices
    are counted: the exact figures are the daily ones. A service may be configured to keep none.
    """
    return answer(shown_hours(await _read(caller, first, last)))


@router.get("/statistics/reasons", **operation("Statistics by reason", list[ReasonFiguresAnswer]))
async def statistics_by_reason(
    caller: Reader, first: First = None, last: Last = None, limit: CampaignsOfReason = 20
) -> Response:
    """The triggers' decisions by reason, the most frequent first.

    Counts each campaign at each detection, or once a detection that was refused before its
    campaigns were checked. `granted` was sent, or requested from the company's service. Days are in
    UTC. Figures are kept for a month, and an answer has at most 31 days. After a crash some
    detections are counted twice, and test devices are counted. Some hundred sums by campaign are
    kept for each day; under heavy load they are an estimate.
    """
    days = await _read(caller, first, last)
    async with caller.services.database.autocommit() as session:
        found = await shown_reasons(session, caller.company_id, days.values(), limit)
    return answer(found)


async def _read(
    caller: AuthorizedCaller, first: str | None, last: str | None
) -> dict[date, DayFigures]:
    """Raises ApiError 400 and 503."""
    services = caller.services
    begin, end = chosen_days(first, last, services.clock(), _MOST_DAYS)
    try:
        return await services.day_figures(caller.company_id, begin, end)
    except (RedisError, OSError, TimeoutError) as error:
        _log.error("figures cannot be read", error=type(error).__name__)
        raise unavailable("Redis, which has the figures, does not answer; try again") from None
