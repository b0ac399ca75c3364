"""GET /statistics/hours and /statistics/reasons: what triggers decided, added up.

Triggers and connectors write the sums into Redis; SQL has the days.
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
    int, Query(alias="limit", ge=0, le=100, description="At most so many campaigns of a reason.")
]


@router.get("/statistics/hours", **operation("Statistics by hour", list[HourFiguresAnswer]))
async def statistics_by_hour(caller: Reader, first: First = None, last: Last = None) -> Response:
    """Detections and notifications by the hour in which they were decided and published.

    Hours and days are UTC's; hours without any are left out. A month is kept, and at most 31 days
    are answered. What was decided again after a crash is counted again, and test devices count:
    the exact figures are those of days. A service may be set to keep none.
    """
    return answer(shown_hours(await _read(caller, first, last)))


@router.get("/statistics/reasons", **operation("Statistics by reason", list[ReasonFiguresAnswer]))
async def statistics_by_reason(
    caller: Reader, first: First = None, last: Last = None, limit: CampaignsOfReason = 20
) -> Response:
    """What triggers decided, by reason, the most frequent first: what fired, what did not, and why.

    One for each campaign at each detection, or one for a detection that was refused before its
    campaigns were looked at. `granted` was sent, or requested from the company's service. Days are
    UTC's; a month is kept, and at most 31 days are answered. What was decided again after a crash
    is counted again, and test devices count. By campaign some hundred sums a day are kept, which
    are an estimate under heavy load.
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
