"""Explains why a detection fires a campaign or does not, and when the campaign would fire.

Outcomes come from `decide` and `Schedule`, as those of live detections do. Each campaign is decided
alone, so that its own outcome is known. Every check is listed with the values that it compares, the
checks behind the first failed one included.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil, floor, inf
from typing import NamedTuple

import msgspec

from rules.caps import next_place, refusing_cap
from rules.decision import INACTIVE, UNKNOWN, Target, decide, with_caps
from rules.model import CampaignSnapshot, Cap, Decision, PlaceKind, QuietHours, Reason, Zone
from rules.schedule import LocalClock, Occasion, QuietSchedule, Schedule, quiet_schedule

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_EVERY_DAY = 0b1111111
_UNITS = (("day", 86_400), ("h", 3600), ("min", 60), ("s", 1))
_UP_TO = {Zone.FAR: "far or nearer", Zone.NEAR: "near or nearer", Zone.IMMEDIATE: "immediate"}
NAMES: Mapping[PlaceKind, str] = {
    "beacon": "beacon",
    "geofence": "geofence",
    "nfc": "NFC tag",
    "qrcode": "QR code",
}
_ACTIVE = {True: "active", False: "inactive"}


class ComparedValues(NamedTuple):
    """The value that a check found, and the value with which the check passes."""

    found: str
    needed: str


def duration_text(seconds: float) -> str:
    """The two largest units, rounded up to whole seconds: "13 min 32 s"."""
    left = max(0, ceil(seconds))
    parts = []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}{'s' if unit == 'day' and count > 1 else ''}")
    return " ".join(parts[:2]) or "0 s"


def compared_place(known: bool, kind: PlaceKind) -> ComparedValues:
    """Whether the catalog has the place."""
    return ComparedValues("known" if known else "unknown", f"{_one(kind)} of the catalog")


def compared_activity(active: bool) -> ComparedValues:
    """Whether a record is active."""
    return ComparedValues(_ACTIVE[active], "active")


def compared_campaigns(count: int, kind: PlaceKind) -> ComparedValues:
    """How many campaigns a place has."""
    return ComparedValues(
        f"{count or 'no'} campaign{'' if count == 1 else 's'}",
        f"a campaign that targets the {NAMES[kind]}",
    )


def compared_target(aimed: bool, kind: PlaceKind) -> ComparedValues:
    """Whether one campaign targets a place."""
    return ComparedValues(
        "targeted" if aimed else "not targeted",
        f"{_one(kind)} that the campaign names, or its tag",
    )


def compared_zone(zone: Zone) -> ComparedValues:
    """Whether the proximity is known."""
    return ComparedValues(zone.name.lower(), "immediate, near or far")


def compared_reach(zone: Zone, reach: Zone) -> ComparedValues:
    """Whether the device is near enough."""
    return ComparedValues(zone.name.lower(), _UP_TO[reach])


def compared_age(seconds: float, most: float) -> ComparedValues:
    """How old the detection is."""
    return ComparedValues(f"{duration_text(seconds)} old", f"at most {duration_text(most)}")


def compared_lead(seconds: float, most: float) -> ComparedValues:
    """How far the detection is ahead of the engine's clock."""
    return ComparedValues(f"{duration_text(seconds)} ahead", f"at most {duration_text(most)}")


def compared_schedule(
    campaign: CampaignSnapshot, schedule: Schedule, occasion: Occasion
) -> Mapping[Reason, ComparedValues]:
    """The values that the checks of a schedule compare, by reason."""
    clock = schedule.clock
    weekday = WEEKDAYS[occasion.weekday]
    opened = " (the window opened the day before)" if occasion.carried else ""
    return {
        Reason.INACTIVE: compared_activity(campaign.active),
        Reason.NOT_STARTED: ComparedValues(
            clock.written(occasion.moment), f"from {clock.written(schedule.start)} on"
        ),
        Reason.ENDED: ComparedValues(
            clock.written(occasion.moment), f"until {clock.written(schedule.end)}"
        ),
        Reason.WRONG_WEEKDAY: ComparedValues(weekday + opened, _days(campaign.weekdays)),
        Reason.OUTSIDE_HOURS: ComparedValues(_wall(campaign, clock, occasion), _hours(campaign)),
    }


def compared_content() -> ComparedValues:
    """A campaign is open, and its content is not in the index yet."""
    return ComparedValues("its content is not in the index yet", "its content")


def compared_connector(has_connector: bool) -> ComparedValues:
    """Whether the company has a connector."""
    found = "set up" if has_connector else "none set up"
    return ComparedValues(found, "a connector of the company")


def compared_moment(campaign: CampaignSnapshot) -> ComparedValues:
    """What happens, and the moment of a visit at which the campaign fires."""
    moments = {
        "enter": "the device enters",
        "dwell": f"the device has stayed for {campaign.dwell_minutes} min",
        "exit": "the device has left",
    }
    return ComparedValues("a detection", moments[campaign.on])


def compared_claim(
    campaign: CampaignSnapshot, clock: LocalClock, held: float | None, detected_at: float
) -> ComparedValues:
    """When the campaign was last sent to the device, and how often it may be sent."""
    if not campaign.delay:
        return ComparedValues("no cache delay", "no cache delay")
    needed = f"at least {duration_text(campaign.delay)} between two sends"
    if held is None:
        return ComparedValues("no claim", needed)
    left = held + campaign.delay - detected_at
    ends = f"{duration_text(left)} left" if left > 0 else "that is over"
    return ComparedValues(f"claimed at {clock.written(held)}, {ends}", needed)


def compared_quiet_hours(hours: QuietHours, schedule: QuietSchedule, at: float) -> ComparedValues:
    """Whether the company is quiet where the device is, and until when."""
    until = schedule.clock.written(schedule.next_change(at))
    found = f"quiet until {until}" if schedule.verdict(at).reason else "not quiet"
    return ComparedValues(found, f"not {_hours(hours)}, {_days(hours.weekdays)}")


def compared_caps(
    caps: Sequence[Cap], clock: LocalClock, sent: Sequence[float], at: float
) -> ComparedValues:
    """The cap that refuses the campaign, and until when; else all of them."""
    found, refusing = "not capped", refusing_cap(sent, at, caps)
    if refusing is not None:
        found = f"capped until {clock.written(ceil(next_place(sent, at, caps)))}"
    needed = [
        f"at most {cap.most} within {duration_text(cap.seconds)}"
        for cap in (caps if refusing is None else [refusing])
    ]
    return ComparedValues(found, ", ".join(needed))


def _one(kind: PlaceKind) -> str:
    return f"{'an' if kind == 'nfc' else 'a'} {NAMES[kind]}"


def _days(mask: int) -> str:
    if mask & _EVERY_DAY == _EVERY_DAY:
        return "every day"
    return ", ".join(day for bit, day in enumerate(WEEKDAYS) if mask >> bit & 1) or "no day"


def _hours(hours: CampaignSnapshot | QuietHours) -> str:
    if hours.start_minute == hours.end_minute:
        return "the whole day"
    return f"{_time(hours.start_minute)} to {_time(hours.end_minute)}"


def _wall(campaign: CampaignSnapshot, clock: LocalClock, occasion: Occasion) -> str:
    """Friday 22:41 in Europe/Paris."""
    day = (occasion.weekday + occasion.carried) % len(WEEKDAYS)
    minute = _time(occasion.second_of_day // 60)
    if campaign.time_zone is not None:
        return f"{WEEKDAYS[day]} {minute} in {campaign.time_zone}"
    return f"{WEEKDAYS[day]} {minute} at {clock.written(occasion.moment)[-5:]}"


def _time(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


# Checks whose result depends on the time alone.
_BY_TIME = {
    Reason.STALE,
    Reason.FUTURE,
    Reason.NOT_STARTED,
    Reason.ENDED,
    Reason.WRONG_WEEKDAY,
    Reason.OUTSIDE_HOURS,
    Reason.QUIET_HOURS,
    Reason.THROTTLED,
    Reason.CAPPED,
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


class DeviceHistory(NamedTuple):
    """What is known of a device: its newest claims by campaign, the times (epoch s) of the
    notifications that its company's caps count, in order, and its time zone."""

    claims: Mapping[int, HeldClaim] = {}
    sent: Sequence[float] = ()
    time_zone: str | None = None


class Question(NamedTuple):
    """A detection to explain; times in epoch seconds.

    `claims`, `sent` and `time_zone` are those of the device's history, `kind` says what kind of
    place detected it.
    """

    zone: Zone
    detected_at: float
    decided_at: float
    max_age: float
    claims: Mapping[int, HeldClaim]
    kind: PlaceKind = "beacon"
    sent: Sequence[float] = ()
    time_zone: str | None = None

    def decide(self, target: Target | None) -> Decision:
        """The decision of a trigger that knows these claims."""
        if target is None:
            return UNKNOWN[self.kind]
        held = {number: claim.detected_at for number, claim in self.claims.items()}
        at, zone = self.detected_at, self.time_zone
        decision = decide(target, self.zone, at, self.decided_at, self.max_age, held, zone)
        return with_caps(decision, target, at, self.sent, zone)

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
    reason, campaigns = question.decide(target).reason, target.campaigns if target else ()
    compared = compared_campaigns(len(campaigns), question.kind)
    checks = tuple(_shared_checks(target, question, compared))
    if target is None:
        return Explanation(reason, checks, ())
    explained = []
    for campaign in campaigns:
        found = _explain_campaign(target.with_campaigns(campaign), campaign, question, checks)
        explained.append(found)
        if found.reason is Reason.GRANTED and not campaign.ignores_caps:
            # Those with a lower priority find its place taken.
            question = question._replace(sent=sorted([*question.sent, question.detected_at]))
    return Explanation(reason, checks, tuple(explained))


def explain_campaign(target: Target, campaign: CampaignSnapshot, question: Question) -> Explanation:
    """Explain one campaign, which may or may not be aimed at the target."""
    aimed = any(each.id == campaign.id for each in target.campaigns)
    alone = target.with_campaigns(*([campaign] if aimed else []))
    checks = tuple(_shared_checks(alone, question, compared_target(aimed, target.kind)))
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

    An unknown place has no venue and no proximity to check.
    """
    zone, most = question.zone, question.max_age
    known, kind = target is not None, question.kind if target is None else target.kind
    yield ExplainedCheck(UNKNOWN[kind].reason, known, compared_place(known, kind))
    if target is not None:
        active = target.venue.active
        yield ExplainedCheck(Reason.INACTIVE_VENUE, active, compared_activity(active))
        active = target.active
        yield ExplainedCheck(INACTIVE[kind], active, compared_activity(active))
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
    checks = tuple(_campaign_checks(campaign, schedule, alone, question))
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
    campaign: CampaignSnapshot, schedule: Schedule, alone: Target, question: Question
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
        compared_one = compared_connector(alone.has_connector)
        yield ExplainedCheck(Reason.NO_CONNECTOR, alone.has_connector, compared_one)
    if campaign.on != "detection":
        yield ExplainedCheck(Reason.NOT_ENTERED, False, compared_moment(campaign))
    hours, caps = alone.rules.quiet_hours, alone.rules.caps
    quiet = quiet_schedule(hours, alone.zones(question.time_zone))
    if hours is not None and quiet is not None and not campaign.ignores_quiet_hours:
        compared_one = compared_quiet_hours(hours, quiet, at)
        yield ExplainedCheck(Reason.QUIET_HOURS, quiet.verdict(at).reason is None, compared_one)
    held = None if claim is None else claim.detected_at
    free = not campaign.delay or held is None or not at < held + campaign.delay
    yield ExplainedCheck(Reason.THROTTLED, free, compared_claim(campaign, schedule.clock, held, at))
    if caps and not campaign.ignores_caps:
        compared_one = compared_caps(caps, schedule.clock, question.sent, at)
        passed = refusing_cap(question.sent, at, caps) is None
        yield ExplainedCheck(Reason.CAPPED, passed, compared_one)


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
        elif decision.reason is Reason.CAPPED:
            t = ceil(next_place(question.sent, t, alone.rules.caps))
        else:
            t = alone.phase_at(t, question.time_zone).until
        if t == inf:
            return None
    return None
