"""GET /realtime/decisions, a live sample of decisions; GET /realtime/roles, states of roles."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, get_args

from fastapi import APIRouter, Query
from pydantic import Field

from api.answers import (
    INT64,
    REASONS,
    Answer,
    Count,
    ReasonName,
    Timestamp,
    ZoneName,
    bad_fields,
    unavailable,
)
from api.devices import CampaignOutcomeAnswer
from api.permissions import PREFIX, AuthorizedCaller, may_read
from api.reports import ROLES, AwaitedCheck, LiveDecision, RoleReport
from rules.schedule import zone_clock

router = APIRouter(prefix=f"{PREFIX}/realtime", tags=["realtime"])
_CHECKS = get_args(AwaitedCheck)
_ALIVE_SECONDS = 30.0  # a process reports every five
_BEHIND_SECONDS = 5.0  # below it a role is up to date
_CLOCK = zone_clock("UTC")
Position = Annotated[
    str | None,
    Query(
        pattern=r"^[0-9]{1,15}-[0-9]{1,10}$",
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
    ReasonName | None,
    Query(
        alias="reason",
        description="Only with this outcome, of a campaign or of the whole detection.",
    ),
]


class LiveDecisionAnswer(Answer):
    """A decision of a running trigger, without the device."""

    detected_at: Timestamp
    decided_at: Timestamp
    lieu: str = Field(description="The venue's name.")
    beacon: str = Field(description="The beacon's name.")
    proximity: ZoneName
    reason: ReasonName
    campaigns: list[CampaignOutcomeAnswer]
    left_out: Count = Field(description="The number of decisions before it that were left out.")


class LiveDecisionsAnswer(Answer):
    after: str = Field(description="The value of `after` for the next request.")
    decisions: list[LiveDecisionAnswer]


class RoleStateAnswer(Answer):
    """The state of a role: the worst of its processes that are alive."""

    role: Literal["trigger", "connector", "recorder"]
    state: Literal["up_to_date", "behind", "starting", "waiting", "silent"]
    seconds: int | None = Field(
        description="How far the role is behind, or for how long it is silent; null for other "
        "states, and for a role that has never reported."
    )
    waits_for: list[AwaitedCheck] = Field(
        description="What the role waits for; empty for other states."
    )


@router.get("/decisions")
async def live_decisions(
    caller: Annotated[AuthorizedCaller, may_read("live decision")],
    after: Position = None,
    venue: VenueNamed = None,
    campaign: CampaignOnly = None,
    reason: ReasonOnly = None,
) -> LiveDecisionsAnswer:
    """A sample of the triggers' decisions at the company's beacons; no device is named.

    Poll once a second. While a client polls, each trigger process passes on at most a hundred
    decisions a second; `left_out` counts the others. Triggers stop five seconds after the last
    request. An answer has at most 200 decisions, the oldest first.
    """
    if reason is not None and reason not in REASONS:
        raise bad_fields({"reason": f"accepted: {', '.join(REASONS)}"})
    found = await caller.services.live_decisions(caller.company_id, after)
    if found is None:
        raise unavailable("too many companies watch at once; try again", seconds=10)
    matching = [each for each in found.decisions if _matches(each, venue, campaign, reason)]
    return LiveDecisionsAnswer(after=found.after, decisions=[_shown(each) for each in matching])


@router.get("/roles")
async def list_role_states(
    caller: Annotated[AuthorizedCaller, may_read("role state")],
) -> list[RoleStateAnswer]:
    """The state of the service's triggers, connectors and recorders, one record per role.

    Each process reports every five seconds. A role is `waiting` for the checks in `waits_for`, and
    `silent` if no process has reported on it for half a minute.
    """
    return role_states(await caller.services.role_reports())


def _matches(
    decision: LiveDecision, venue: str | None, campaign: int | None, reason: str | None
) -> bool:
    if venue is not None and decision.venue != venue:
        return False
    outcomes = [one.outcome for one in decision.campaigns if campaign in (None, one.id)]
    if campaign is not None and not outcomes:
        return False
    return reason is None or reason in (outcomes or [decision.reason])


def _shown(decision: LiveDecision) -> LiveDecisionAnswer:
    """Times are in UTC."""
    proximity: Any = decision.zone.name.lower()
    return LiveDecisionAnswer(
        detected_at=_CLOCK.written(decision.detected_at),
        decided_at=_CLOCK.written(decision.decided_at),
        lieu=decision.venue,
        beacon=decision.beacon,
        proximity=proximity,
        reason=decision.reason,
        campaigns=[CampaignOutcomeAnswer(**each._asdict()) for each in decision.campaigns],
        left_out=decision.left_out,
    )


def role_states(reports: Iterable[RoleReport]) -> list[RoleStateAnswer]:
    """One state for each role."""
    by_role: dict[str, list[RoleReport]] = {role: [] for role in ROLES}
    for report in reports:
        by_role.get(report.role, []).append(report)
    return [_state(role, found) for role, found in by_role.items()]


def _state(role: Any, reports: Sequence[RoleReport]) -> RoleStateAnswer:
    alive = [each for each in reports if each.age < _ALIVE_SECONDS]
    waits_for: set[Any] = {name for each in alive for name in each.waits_for if name in _CHECKS}
    behind = [each.behind for each in alive if each.behind is not None]
    state: Any = "up_to_date"
    seconds: float | None = None
    if not alive:
        state, seconds = "silent", min((each.age for each in reports), default=None)
    elif waits_for:
        state = "waiting"
    elif len(behind) < len(alive):
        state = "starting"
    elif max(behind) >= _BEHIND_SECONDS:
        state, seconds = "behind", max(behind)
    return RoleStateAnswer(
        role=role,
        state=state,
        seconds=None if seconds is None else int(seconds),
        waits_for=sorted(waits_for),
    )
