"""GET /realtime/decisions, a live sample of decisions; GET /realtime/roles, states of roles."""

import re
from collections.abc import Iterable
from typing import Annotated

import structlog
from fastapi import APIRouter, Query
from redis.exceptions import RedisError
from starlette.responses import Response

from api.answers import answer
from api.errors import bad_fields, unavailable
from api.openapi.operations import operation
from api.permissions import AuthorizedCaller, may_read
from api.plain_route import PlainRoute
from api.records.live import LiveDecision, LiveDecisionsAnswer, shown_live
from api.records.role import RoleStateAnswer, role_states
from api.routes.parameters import PREFIX
from catalog.fields.values import INT64
from rules.model import Reason

router = APIRouter(route_class=PlainRoute, prefix=PREFIX, tags=["realtime"])
_log = structlog.get_logger(__name__)
_PLACE = re.compile(r"^[0-9]{1,15}-[0-9]{1,10}$")
_REASONS = [reason.value for reason in Reason]
After = Annotated[
    str | None,
    Query(
        json_schema_extra={"pattern": _PLACE.pattern},
        description="`after` of the previous answer: return only later decisions.",
    ),
]
VenueNamed = Annotated[
    str | None, Query(alias="lieu", description="Only at the venue with this name.")
]
CampaignOnly = Annotated[
    int | None,
    Query(
        alias="campaign", ge=1, le=INT64, description="Only at beacons of this campaign, by its id."
    ),
]
ReasonOnly = Annotated[
    str | None,
    Query(
        alias="reason",
        json_schema_extra={"enum": _REASONS},
        description="Only with this outcome, of a campaign or of the whole detection.",
    ),
]


@router.get("/realtime/decisions", **operation("Live decisions", LiveDecisionsAnswer))
async def live_decisions(
    caller: Annotated[AuthorizedCaller, may_read("live decision")],
    after: After = None,
    venue: VenueNamed = None,
    campaign: CampaignOnly = None,
    reason: ReasonOnly = None,
) -> Response:
    """A sample of the triggers' decisions at the company's beacons; no device is named.

    Poll once a second. While a client polls, each trigger process passes on at most a hundred
    decisions a second; `left_out` counts the others. Triggers stop five seconds after the last
    request. An answer has at most 200 decisions, the oldest first.
    """
    faults = {}
    if after is not None and not _PLACE.fullmatch(after):
        faults["after"] = "accepted: `after` of the previous answer"
    if reason is not None and reason not in _REASONS:
        faults["reason"] = f"accepted: {', '.join(_REASONS)}"
    if faults:
        raise bad_fields(faults)
    try:
        found = await caller.services.live_decisions(caller.company_id, after)
    except (RedisError, OSError, TimeoutError) as error:
        _log.error("live decisions cannot be read", error=type(error).__name__)
        raise unavailable("Redis, which passes them on, does not answer; try again") from None
    if found is None:
        raise unavailable("too many companies watch at once; try again", seconds=10)
    kept = _fitting(found.decisions, venue, campaign, reason)
    return answer(shown_live(found._replace(decisions=kept)))


@router.get("/realtime/roles", **operation("Role states", list[RoleStateAnswer]))
async def list_role_states(
    caller: Annotated[AuthorizedCaller, may_read("role state")],
) -> Response:
    """Whether the service's triggers, connectors and recorders keep up, one line a role.

    Each process says it every five seconds. `waiting` names what the role waits for; `silent` is a
    role that no process has spoken of for half a minute.
    """
    try:
        reports = await caller.services.role_reports()
    except (RedisError, OSError, TimeoutError) as error:
        _log.error("the states of roles cannot be read", error=type(error).__name__)
        raise unavailable("Redis, which has them, does not answer; try again") from None
    return answer(role_states(reports))


def _fitting(
    decisions: Iterable[LiveDecision], venue: str | None, campaign: int | None, reason: str | None
) -> list[LiveDecision]:
    found = []
    for each in decisions:
        if venue is not None and each.venue != venue:
            continue
        outcomes = [one for one in each.campaigns if campaign in (None, one.id)]
        if campaign is not None and not outcomes:
            continue
        if reason in (
            None,
            *(one.outcome for one in outcomes),
            *(() if outcomes else (each.reason,)),
        ):
            found.append(each)
    return found
