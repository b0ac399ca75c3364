"""Explanations of campaigns as the interface and `proximity explain --json` show them."""

from math import ceil
from typing import Annotated, Literal

from pydantic import Field

from api.answers import Answer, Count, Id, Record, Timestamp
from rules.explanation import ExplainedCampaign, ExplainedCheck
from rules.model import Reason

_CHECKS = [reason.value for reason in Reason if reason is not Reason.GRANTED]
Check = Annotated[str, Field(json_schema_extra={"enum": _CHECKS})]


class CheckAnswer(Answer):
    """A rules.explanation.ExplainedCheck."""

    check: Check = Field(description="The check, named by the reason of its refusals.")
    passed: bool
    found: str
    needed: str


class ExplainedBeaconAnswer(Answer):
    id: Id
    name: str
    uuid: Annotated[str, Field(json_schema_extra={"format": "uuid"})]
    major: Count
    minor: Count


class NamedAnswer(Answer):
    id: Id
    name: str


class ClaimAnswer(Answer):
    """A rules.explanation.HeldClaim."""

    notification: str = Field(description="The id of the notification that holds the claim.")
    detected_at: Timestamp
    ends_at: Timestamp = Field(
        description="The end of the claim: before it the campaign is not sent to the device."
    )


class ExplanationAnswer(Answer):
    """A rules.explanation.ExplainedCampaign, with its detection."""

    at: Timestamp
    proximity: Literal["immediate", "near", "far", "unknown"]
    beacon: ExplainedBeaconAnswer | None = Field(
        description="null if the campaign targets no beacon and the request names none."
    )
    campaign: NamedAnswer
    reason: str = Field(
        description="granted, or the first check that fails.",
        json_schema_extra={"enum": [*_CHECKS, Reason.GRANTED.value]},
    )
    checks: list[CheckAnswer] = Field(description="Every check, in order.")
    claim: ClaimAnswer | None = Field(description="The newest claim of the device on the campaign.")
    next_at: Timestamp | None = Field(
        description="The first moment, from `at` on, at which it would fire, as far as is known "
        "now; null if there is none."
    )
    blocked_by: list[Check] = Field(
        description="If `next_at` is null: the checks that fail at any time."
    )


def shown_check(check: ExplainedCheck) -> Record:
    """One check."""
    found, needed = check.compared
    return {"check": check.check.value, "passed": check.passed, "found": found, "needed": needed}


def shown_campaign(explained: ExplainedCampaign) -> Record:
    """The outcome of one campaign, with its own checks; times are in its local time."""
    claim, written = explained.claim, explained.clock.written
    return {
        "campaign": {"id": explained.campaign.id, "name": explained.campaign.name},
        "reason": explained.reason.value,
        "checks": [shown_check(check) for check in explained.checks],
        "claim": None
        if claim is None
        else {
            "notification": claim.notification_id,
            "detected_at": written(claim.detected_at),
            "ends_at": written(ceil(explained.claim_ends_at or claim.detected_at)),
        },
        "next_at": None if explained.next_at is None else written(explained.next_at),
        "blocked_by": [reason.value for reason in explained.blocked_by],
    }
