"""Explains why a detection fires a campaign or does not, and when the campaign would fire.

Outcomes come from `decide` and `Schedule`, as those of live detections do. Each campaign is decided
alone, so that its own outcome is known. Every check is listed with the values that it compares, the
checks behind the first failed one included.
"""

from collections.abc import Iterator, Mapping
from math import ceil, floor, inf
from typing import NamedTuple

import msgspec

from rules.compared_values import (
    ComparedValues,
    compared_activity,
    compared_age,
    compared_beacon,
    compared_campaigns,
    compared_claim,
    compared_connector,
    compared_content,
    compared_lead,
    compared_reach,
    compared_schedule,
    compared_target,
    compared_zone,
)
from rules.decision import Target, decide
from rules.local_time import LocalClock
from rules.model import CampaignSnapshot, Reason, Zone
from rules.outcome import Decision
from rules.schedule import Schedule

# Checks whose result depends on the time alone.
_BY_TIME = {
    Reason.STALE,
    Reason.FUTURE,
    Reason.NOT_STARTED,
    Reason.ENDED,
    Reason.WRONG_WEEKDAY,
    Reason.OUTSIDE_HOURS,
    Reason.THROTTLED,
}
# A schedule that opens at all opens within two weeks of its start, and within two weeks of any
# instant before its end. A day has at most five pieces.
_MOST_STEPS = 200


class HeldClaim(NamedTuple):
    """The newest claim of a device on a campaign.

    `detected_at` (epoch s) is the time of the detection that took the claim, and
    `notification_id` is the id of its notification.
    """

    notification_id: str
    detected_at: float


class Question(NamedTuple):
    """A detection to explain; times in epoch seconds.

    `claims` has the device's claims by campaign id.
    """

    zone: Zone
    detected_at: float
    decided_at: float
    max_age: float
    claims: Mapping[int, HeldClaim]

    def decide(self, target: Target | None) -> Decision:
        """The decision of a trigger that knows these claims."""
        held = {number: claim.detected_at for number, claim in self.claims.items()}
        return decide(target, self.zone, self.detected_at, self.decided_at, self.max_age, held)

    def at_time(self, moment: float) -> "Question":
        """The same question about a detection at `moment` (epoch s) that is decided at once."""
        return self._replace(detected_at=moment, decided_at=moment)


class ExplainedCheck(NamedTuple):
    """A check and the values that it compared. `check` is the reason of a refusal by it."""

    check: Reason
    passed: bool
    compared: ComparedValues


class ExplainedCampaign(NamedTuple):
    """The outcome of one campaign. `reason` is granted, or the first check that fails.

    `next_at` (epoch s, in whole seconds from the detection on) is the first moment at which a
    detection that is decided at once would fire the campaign, by what is known now. If there is no
    such moment, `next_at` is None and `blocked_by` has the checks that fail at any time.
    """

    campaign: CampaignSnapshot
    clock: LocalClock
    reason: Reason
    checks: tuple[ExplainedCheck, ...]
    claim: HeldClaim | None
    next_at: float | None
    blocked_by: tuple[Reason, ...]

    @property
    def claim_ends_at(self) -> float | None:
        """The end of the cache delay that began with the claim (epoch s)."""
        return None if self.claim is None else self.claim.detected_at + self.campaign.delay


class Explanation(NamedTuple):
    """The outcome of a detection. `checks` are those that do not depend on a campaign."""

    reason: Reason
    checks: tuple[ExplainedCheck, ...]
    campaigns: tuple[ExplainedCampaign, ...]


def explain(target: Target | None, question: Question) -> Explanation:
    """Explain why each campaign of a target fires for a detection, or does not."""
    campaigns = () if target is None else target.campaigns
    checks = tuple(_shared_checks(target, question, compared_campaigns(len(campaigns))))
    explained = [
        _explain_campaign(target.with_campaigns(campaign), campaign, question, checks)
        for campaign in campaigns
        if target is not None
    ]
    return Explanation(question.decide(target).reason, checks, tuple(explained))


def explain_campaign(target: Target, campaign: CampaignSnapshot, question: Question) -> Explanation:
    """Explain one campaign, which may or may not be aimed at the target."""
    aimed = any(each.id == campaign.id for each in target.campaigns)
    alone = target.with_campaigns(*([campaign] if aimed else []))
    checks = tuple(_shared_checks(alone, question, compared_target(aimed)))
    explained = _explain_campaign(alone, campaign, question, checks)
    return Explanation(explained.reason, checks, (explained,))


def awake(target: Target) -> Target:
    """The target, none of whose campaigns is asleep, for a decision about another time.

    A campaign that is asleep now has its content in the index by the time it can fire.
    """
    return target.with_campaigns(*map(awake_campaign, target.campaigns))


def awake_campaign(campaign: CampaignSnapshot) -> CampaignSnapshot:
    """The campaign, not asleep, for a decision about another time."""
    return msgspec.structs.replace(campaign, asleep=False)


def _shared_checks(
    target: Target | None, question: Question, campaigns: ComparedValues
) -> Iterator[ExplainedCheck]:
    """The checks that need no campaign, in the order of the contract.

    An unknown beacon has no venue and no proximity to check.
    """
    zone, most = question.zone, question.max_age
    known = target is not None
    yield ExplainedCheck(Reason.UNKNOWN_BEACON, known, compared_beacon(known))
    if target is not None:
        active = target.venue.active
        yield ExplainedCheck(Reason.INACTIVE_VENUE, active, compared_activity(active))
        active = target.active
        yield ExplainedCheck(Reason.INACTIVE_BEACON, active, compared_activity(active))
        yield ExplainedCheck(Reason.NO_CAMPAIGN, target.has_campaigns, campaigns)
    if target is not None and target.reach is not None:
        known = zone is not Zone.UNKNOWN
        yield ExplainedCheck(Reason.UNKNOWN_PROXIMITY, known, compared_zone(zone))
        near = known and zone <= target.reach
        yield ExplainedCheck(Reason.TOO_FAR, near, compared_reach(zone, target.reach))
    at, now = question.detected_at, question.decided_at
    yield ExplainedCheck(Reason.STALE, not at < now - most, compared_age(now - at, most))
    yield ExplainedCheck(Reason.FUTURE, not at > now + most, compared_lead(at - now, most))


def _explain_campaign(
    alone: Target,
    campaign: CampaignSnapshot,
    question: Question,
    shared: tuple[ExplainedCheck, ...],
) -> ExplainedCampaign:
    schedule = Schedule(campaign)
    checks = tuple(_campaign_checks(campaign, schedule, alone.has_connector, question))
    failed = [each.check for each in (*shared, *checks) if not each.passed]
    next_at = None
    if alone.has_campaigns:
        untimely = Reason.STALE in failed or Reason.FUTURE in failed
        origin = question.decided_at if untimely else question.detected_at
        next_at = _next_firing(awake(alone), question, origin)
    blocked_by = [check for check in dict.fromkeys(failed) if check not in _BY_TIME]
    return ExplainedCampaign(
        campaign,
        schedule.clock,
        question.decide(alone).reason,
        checks,
        question.claims.get(campaign.id),
        next_at,
        tuple(blocked_by) if next_at is None else (),
    )


def _campaign_checks(
    campaign: CampaignSnapshot, schedule: Schedule, has_connector: bool, question: Question
) -> Iterator[ExplainedCheck]:
    """The checks of one campaign, in the order of the contract."""
    at, claim = question.detected_at, question.claims.get(campaign.id)
    compared = compared_schedule(campaign, schedule, schedule.occasion(floor(at)))
    *of_schedule, (content, has_content) = schedule.checks(at)
    for check, passed in of_schedule:
        yield ExplainedCheck(check, passed, compared[check])
    if not has_content:
        yield ExplainedCheck(content, False, compared_content())
    if campaign.format == "connector":
        yield ExplainedCheck(Reason.NO_CONNECTOR, has_connector, compared_connector(has_connector))
    held = None if claim is None else claim.detected_at
    free = not campaign.delay or held is None or not at < held + campaign.delay
    yield ExplainedCheck(Reason.THROTTLED, free, compared_claim(campaign, schedule.clock, held, at))


def _next_firing(alone: Target, question: Question, origin: float) -> float | None:
    """The first moment from `origin` on at which the target's only campaign is granted.

    Visits one change of the decision after the other, so the number of steps is bounded.
    """
    (campaign,) = alone.campaigns
    if not campaign.weekdays:
        return None
    t = origin
    for _ in range(_MOST_STEPS):
        decision = question.at_time(t).decide(alone)
        if decision.granted:
            return t
        if decision.reason not in _BY_TIME:
            return None
        if decision.reason is Reason.THROTTLED:
            t = ceil(question.claims[campaign.id].detected_at + campaign.delay)
        else:
            t = alone.phase_at(t).until
        if t == inf:
            return None
    return None
