"""Decisions of running triggers as they happen, without the device."""

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from api.answers import Answer, Count, Record, Timestamp
from api.records.decision import CampaignOutcomeAnswer
from rules.local_time import zone_clock
from rules.model import Reason, Zone

_REASONS: dict[str, Any] = {"enum": [reason.value for reason in Reason]}
_CLOCK = zone_clock("UTC")


class LiveOutcome(NamedTuple):
    """A campaign, and the reason of its outcome."""

    id: int
    name: str
    outcome: str


class LiveDecision(NamedTuple):
    """A decision; times in epoch seconds.

    `left_out` counts decisions before it that were not passed on, because there were too many.
    """

    detected_at: float
    decided_at: float
    venue: str
    beacon: str
    zone: Zone
    reason: str
    campaigns: tuple[LiveOutcome, ...]
    left_out: int


class LiveDecisions(NamedTuple):
    """The decisions after a position, and the position for the next request."""

    after: str
    decisions: list[LiveDecision]


class LiveDecisionAnswer(Answer):
    detected_at: Timestamp
    decided_at: Timestamp
    lieu: str = Field(description="The venue's name.")
    beacon: str = Field(description="The beacon's name.")
    proximity: Literal["immediate", "near", "far", "unknown"]
    reason: str = Field(json_schema_extra=_REASONS)
    campaigns: list[CampaignOutcomeAnswer]
    left_out: Count = Field(description="The number of decisions before it that were left out.")


class LiveDecisionsAnswer(Answer):
    after: Annotated[str, Field(description="The value of `after` for the next request.")]
    decisions: list[LiveDecisionAnswer]


def shown_live(found: LiveDecisions) -> Record:
    """The decision as an answer; times in UTC."""
    return {"after": found.after, "decisions": [_shown(each) for each in found.decisions]}


def _shown(decision: LiveDecision) -> Record:
    return {
        "detected_at": _CLOCK.written(decision.detected_at),
        "decided_at": _CLOCK.written(decision.decided_at),
        "lieu": decision.venue,
        "beacon": decision.beacon,
        "proximity": decision.zone.name.lower(),
        "reason": decision.reason,
        "campaigns": [each._asdict() for each in decision.campaigns],
        "left_out": decision.left_out,
    }
