"""What goes on: a live sample of decisions, the states of the roles, and the audit."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_args

from fastapi import APIRouter, Query
from pydantic import BeforeValidator, Field
from starlette.responses import Response

from api.answers import Answer, Count, EpochTime, Id, ReasonName, Timestamp, ZoneName
from api.bodies import LISTING, FromOne, Listing
from api.devices import CampaignOutcomeAnswer
from api.permissions import AREA_OF, PREFIX, Caller, may_read
from api.reports import ROLES, AwaitedCheck, LiveDecision, RoleReport
from api.tenancy import listed, of_company
from catalog.inputs import READ
from catalog.models import AuditEntry
from catalog.session import AUDITED_KINDS
from rules.model import Reason

router = APIRouter(prefix=PREFIX)
Reader = Annotated[Caller, may_read("live decision")]
_CHECKS = get_args(AwaitedCheck)
_ALIVE_SECONDS = 30.0  # a process reports every five
_BEHIND_SECONDS = 5.0  # below it a role is up to date


class LiveDecisionAnswer(Answer):
    """A decision of a running trigger, without the device. Times are in UTC."""

    detected_at: EpochTime
    decided_at: EpochTime
    lieu: str = Field(validation_alias="venue", description="The venue's name.")
    beacon: str = Field(description="The beacon's name.")
    proximity: Annotated[ZoneName, BeforeValidator(lambda zone: zone.name.lower())] = Field(
        validation_alias="zone"
    )
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


class AuditEntryAnswer(Answer):
    """One change of one record. `before` and `after` have the fields that changed."""

    id: Id
    create_on: Timestamp
    account_id: Id
    email: str
    request: str = Field(description="The `x-request-id` of the request.")
    action: Literal["create", "edit", "delete", "restore"]
    kind: str = Field(json_schema_extra={"enum": list(AUDITED_KINDS)})
    ref: Id = Field(description="The id of the record.")
    name: str = Field(description="The record's name at that time; empty for devices, accounts.")
    before: dict[str, Any]
    after: dict[str, Any]


@router.get("/realtime/decisions", response_model=LiveDecisionsAnswer, tags=["realtime"])
async def live_decisions(
    caller: Reader,
    after: Annotated[
        str | None,
        Query(
            pattern=r"^[0-9]{1,15}-[0-9]{1,10}$",
            description="`after` of the previous answer: return only later decisions.",
        ),
    ] = None,
    lieu: Annotated[str | None, Query(description="Only at the venue with this name.")] = None,
    campaign: Annotated[
        FromOne | None, Query(description="Only at beacons of this campaign, by its id.")
    ] = None,
    reason: Annotated[
        Reason | None,
        Query(description="Only with this outcome, of a campaign or of the whole detection."),
    ] = None,
) -> Any:
    """A sample of the triggers' decisions at the company's beacons; no device is named.

    Poll once a second. While a client polls, each trigger process passes on at most a hundred
    decisions a second; `left_out` counts the others. Triggers stop five seconds after the last
    request. An answer has at most 200 decisions, the oldest first.
    """
    found = await caller.services.live_decisions(caller.company_id, after)
    decisions = [each for each in found.decisions if _matches(each, lieu, campaign, reason)]
    return {"after": found.after, "decisions": decisions}


@router.get("/realtime/roles", tags=["realtime"])
async def list_role_states(caller: Reader) -> list[RoleStateAnswer]:
    """The state of the service's triggers, connectors and recorders, one record per role.

    Each process reports every five seconds. A role is `waiting` for the checks in `waits_for`, and
    `silent` if no process has reported on it for half a minute.
    """
    reports = await caller.services.role_reports()
    return [role_state(role, [each for each in reports if each.role == role]) for role in ROLES]


@router.get("/audit", response_model=list[AuditEntryAnswer], tags=["audit"])
async def list_audit(
    caller: Annotated[Caller, may_read("audit")],
    listing: Listing = LISTING,
) -> Response:
    """Changes by the company's accounts, the oldest first.

    The list contains changes of records that the account may read. Of a secret it shows only that
    it changed. Long texts are shortened.
    """
    kinds = [kind for kind in AUDITED_KINDS if caller.account.level(AREA_OF[kind]) >= READ]
    query = of_company(AuditEntry, caller.company_id).where(AuditEntry.kind.in_(kinds))
    return await listed(caller, query, AuditEntryAnswer, listing)


def _matches(
    decision: LiveDecision, venue: str | None, campaign: int | None, reason: Reason | None
) -> bool:
    if venue is not None and decision.venue != venue:
        return False
    outcomes = [one.outcome for one in decision.campaigns if campaign in (None, one.id)]
    if campaign is not None and not outcomes:
        return False
    return reason is None or reason in (outcomes or [decision.reason])


def role_state(role: Any, reports: Sequence[RoleReport]) -> RoleStateAnswer:
    """The state of a role by the reports of its processes."""
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
    whole = None if seconds is None else int(seconds)
    return RoleStateAnswer(role=role, state=state, seconds=whole, waits_for=sorted(waits_for))
