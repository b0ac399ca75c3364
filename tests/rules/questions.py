"""Questions about a detection on a Friday, and the answers to them."""

from collections.abc import Mapping, Sequence
from typing import Any

from rules.decision import Target
from rules.explanation import (
    DeviceHistory,
    ExplainedCampaign,
    Explanation,
    HeldClaim,
    Question,
    explain,
)
from rules.model import CompanyRules, PlaceKind, Reason, Zone
from tests.rules.records import beacon, campaign, epoch

FRIDAY = epoch("2026-11-20T22:41:00+01:00")
PARIS = {"time_zone": "Europe/Paris"}
OF_NO_PLACE = {Reason.UNKNOWN_APPLICATION, Reason.OUTSIDE, Reason.INACCURATE}
# Checks of companies and campaigns that set something.
OF_RULES = {Reason.NOT_ENTERED, Reason.QUIET_HOURS, Reason.CAPPED}
OF_OTHER_PLACES = OF_NO_PLACE | {
    Reason.UNKNOWN_GEOFENCE,
    Reason.UNKNOWN_TAG,
    Reason.INACTIVE_GEOFENCE,
    Reason.INACTIVE_TAG,
}


def new_question(
    at: float = FRIDAY,
    zone: Zone = Zone.NEAR,
    claims: Mapping[int, HeldClaim] | None = None,
    decided_at: float | None = None,
    kind: PlaceKind = "beacon",
    sent: Sequence[float] = (),
    time_zone: str | None = None,
) -> Question:
    decided_at = at if decided_at is None else decided_at
    history = DeviceHistory(claims or {}, sent, time_zone)
    return Question(zone, at, decided_at, 300.0, history, kind)


def at_beacon(
    question: Question | None = None, /, rules: CompanyRules | None = None, **fields: Any
) -> Explanation:
    target = Target.of_place(beacon(), [campaign(**PARIS | fields)], False, rules)
    return explain(target, question or new_question())


def only(explanation: Explanation) -> ExplainedCampaign:
    (found,) = explanation.campaigns
    return found


def compared(explanation: Explanation, check: Reason) -> str:
    """What the check says, and whether it failed."""
    checks = (*explanation.checks, *(only(explanation).checks if explanation.campaigns else ()))
    (found,) = [each for each in checks if each.check is check]
    return f"{'ok' if found.passed else 'NO'} {found.found} | {found.needed}"
