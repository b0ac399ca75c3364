"""Explains why a detection fires a campaign or does not, and when the campaign would fire.

Outcomes come from `decide` and `Schedule`, as those of live detections do. Each campaign is decided
alone, so that its own outcome is known. Every check is listed with the values that it compares, the
checks behind the first failed one included.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil, floor, inf
from typing import NamedTuple

from rules.caps import next_place, refusing_cap
from rules.decision import INACTIVE, UNKNOWN, Target, decide
from rules.model import CampaignSnapshot, Decision, PlaceKind, QuietHours, Reason, Zone
from rules.schedule import LocalClock, Occasion, Schedule, quiet_schedule

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_UNITS = (("day", 86_400), ("h", 3600), ("min", 60), ("s", 1))
_UP_TO = {Zone.FAR: "far or nearer", Zone.NEAR: "near or nearer", Zone.IMMEDIATE: "immediate"}
_NAMES: Mapping[PlaceKind, str] = {
    "beacon": "a beacon",
    "geofence": "a geofence",
    "nfc": "an NFC tag",
    "qrcode": "a QR code",
}
_MOMENTS = {
    "enter": "the device enters",
    "dwell": "the device has stayed for {} min",
    "exit": "the device has left",
}


def _duration(seconds: float) -> str:
    """The two largest units, rounded up to whole seconds: "13 min 32 s"."""
    left = max(0, ceil(seconds))
    parts = []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}{'s' if unit == 'day' and count > 1 else ''}")
    return " ".join(parts[:2]) or "0 s"


def _days(mask: int) -> str:
    if mask == 0b1111111:
        return "every day"
    return ", ".join(day for bit, day in enumerate(_WEEKDAYS) if mask >> bit & 1) or "no day"


def _hours(hours: CampaignSnapshot | QuietHours) -> str:
    if hours.start_minute == hours.end_minute:
        return "the whole day"
    return f"{_time(hours.start_minute)} to {_time(hours.end_minute)}"


def _wall(campaign: CampaignSnapshot, clock: LocalClock, occasion: Occasion) -> str:
    """Friday 22:41 in Europe/Paris."""
    day = (occasion.weekday + occasion.carried) % len(_WEEKDAYS)
    minute = _time(occasion.second_of_day // 60)
    if campaign.time_zone is not None:
        return f"{_WEEKDAYS[day]} {minute} in {campaign.time_zone}"
    return f"{_WEEKDAYS[day]} {minute} at {clock.written(occasion.moment)[-5:]}"


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
    """A detection to explain, by a place of this kind; times in epoch seconds."""

    zone: Zone
    detected_at: float
    decided_at: float
    max_age: float
    history: DeviceHistory = DeviceHistory()
    kind: PlaceKind = "beacon"

    def decide(self, target: Target | None) -> Decision:
        """The decision of a trigger that knows the history; each campaign alone takes a place."""
        if target is None:
            return UNKNOWN[self.kind]
        claims, sent, zone = self.history
        held, at = {id_: claim.detected_at for id_, claim in claims.items()}, self.detected_at
        decision = decide(target, self.zone, at, self.decided_at, self.max_age, held, zone)
        if decision.granted and refusing_cap(sent, at, target.rules.caps) is not None:
            counted = tuple(each for each in decision.granted if not each.ignores_caps)
            others = tuple(each for each in decision.granted if each.ignores_caps)
            decision = target.phase_at(at, zone).granting(others, counted)
        return decision


class ExplainedCheck(NamedTuple):
    """A check: the reason of a refusal by it, the value found, and that with which it passes."""

    check: Reason
    passed: bool
    found: str
    needed: str


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


class Explanation(NamedTuple):
    """The outcome of a detection. `checks` are those that do not depend on a campaign."""

    reason: Reason
    checks: tuple[ExplainedCheck, ...]
    campaigns: tuple[ExplainedCampaign, ...]


def explain(target: Target | None, question: Question) -> Explanation:
    """Explain why each campaign of a target fires for a detection, or does not."""
    reason, campaigns = question.decide(target).reason, target.campaigns if target else ()
    checks = tuple(_shared_checks(target, question))
    if target is None:
        return Explanation(reason, checks, ())
    explained = []
    for campaign in campaigns:
        found = _explain_campaign(target.with_campaigns(campaign), campaign, question, checks)
        explained.append(found)
        if found.reason is Reason.GRANTED and not campaign.ignores_caps:
            # Those with a lower priority find its place taken.
            sent = sorted([*question.history.sent, question.detected_at])
            question = question._replace(history=question.history._replace(sent=sent))
    return Explanation(reason, checks, tuple(explained))


def explain_campaign(target: Target, campaign: CampaignSnapshot, question: Question) -> Explanation:
    """Explain one campaign, which may or may not be aimed at the target."""
    aimed = any(each.id == campaign.id for each in target.campaigns)
    alone = target.with_campaigns(*([campaign] if aimed else []))
    checks = tuple(_shared_checks(alone, question))
    explained = _explain_campaign(alone, campaign, question, checks)
    return Explanation(explained.reason, checks, (explained,))


def _shared_checks(target: Target | None, question: Question) -> Iterator[ExplainedCheck]:
    """The checks that need no campaign, in the order of the contract.

    An unknown place has no venue and no proximity to check.
    """
    zone = question.zone
    kind = question.kind if target is None else target.place.kind
    known = "unknown" if target is None else "known"
    needed = f"{_NAMES[kind]} of the catalog"
    yield ExplainedCheck(UNKNOWN[kind].reason, target is not None, known, needed)
    if target is not None:
        yield _activity(Reason.INACTIVE_VENUE, target.venue.active)
        yield _activity(INACTIVE[kind], target.place.active)
        count = len(target.campaigns)
        found = f"{count or 'no'} campaign{'' if count == 1 else 's'}"
        needed = "a campaign that targets it"
        yield ExplainedCheck(Reason.NO_CAMPAIGN, count > 0, found, needed)
    if target is not None and target.reach is not None:
        found, is_known = zone.name.lower(), zone is not Zone.UNKNOWN
        yield ExplainedCheck(Reason.UNKNOWN_PROXIMITY, is_known, found, "immediate, near or far")
        is_near = is_known and zone <= target.reach
        yield ExplainedCheck(Reason.TOO_FAR, is_near, found, _UP_TO[target.reach])
    at, now, most = question.detected_at, question.decided_at, question.max_age
    needed = f"at most {_duration(most)}"
    age, lead = f"{_duration(now - at)} old", f"{_duration(at - now)} ahead"
    yield ExplainedCheck(Reason.STALE, not at < now - most, age, needed)
    yield ExplainedCheck(Reason.FUTURE, not at > now + most, lead, needed)


def _activity(check: Reason, active: bool) -> ExplainedCheck:
    return ExplainedCheck(check, active, "active" if active else "inactive", "active")


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
    if alone.campaigns:
        untimely = Reason.STALE in failed or Reason.FUTURE in failed
        origin = question.decided_at if untimely else question.detected_at
        next_at = _next_firing(alone, question, origin)
    blocked_by = [check for check in dict.fromkeys(failed) if check not in _BY_TIME]
    return ExplainedCampaign(
        campaign,
        schedule.clock,
        question.decide(alone).reason,
        checks,
        question.history.claims.get(campaign.id),
        next_at,
        tuple(blocked_by) if next_at is None else (),
    )


def _campaign_checks(
    campaign: CampaignSnapshot, schedule: Schedule, alone: Target, question: Question
) -> Iterator[ExplainedCheck]:
    """The checks of one campaign, in the order of the contract."""
    at, written = question.detected_at, schedule.clock.written
    claims, sent, zone = question.history
    yield from _schedule_checks(campaign, schedule, at)
    if campaign.format == "connector":
        found = "set up" if alone.has_connector else "none set up"
        needed = "a connector of the company"
        yield ExplainedCheck(Reason.NO_CONNECTOR, alone.has_connector, found, needed)
    if campaign.on != "detection":
        needed = _MOMENTS[campaign.on].format(campaign.dwell_minutes)
        yield ExplainedCheck(Reason.NOT_ENTERED, False, "a detection", needed)
    hours, caps = alone.rules.quiet_hours, alone.rules.caps
    quiet = quiet_schedule(hours, alone.zones(zone))
    if hours is not None and quiet is not None and not campaign.ignores_quiet_hours:
        is_quiet = quiet.verdict(at).reason is not None
        until = quiet.clock.written(quiet.next_change(at))
        found = f"quiet until {until}" if is_quiet else "not quiet"
        needed = f"not {_hours(hours)}, {_days(hours.weekdays)}"
        yield ExplainedCheck(Reason.QUIET_HOURS, not is_quiet, found, needed)
    yield _claim_check(campaign, schedule.clock, claims.get(campaign.id), at)
    if caps and not campaign.ignores_caps:
        refusing = refusing_cap(sent, at, caps)
        free_at = written(ceil(next_place(sent, at, caps)))
        found = "not capped" if refusing is None else f"capped until {free_at}"
        needed = ", ".join(
            f"at most {cap.most} within {_duration(cap.seconds)}"
            for cap in (caps if refusing is None else [refusing])
        )
        yield ExplainedCheck(Reason.CAPPED, refusing is None, found, needed)


def _schedule_checks(
    campaign: CampaignSnapshot, schedule: Schedule, at: float
) -> Iterator[ExplainedCheck]:
    written, occasion = schedule.clock.written, schedule.occasion(floor(at))
    moment, weekday = written(occasion.moment), _WEEKDAYS[occasion.weekday]
    opened = " (the window opened the day before)" if occasion.carried else ""
    compared = {
        Reason.NOT_STARTED: (moment, f"from {written(schedule.start)} on"),
        Reason.ENDED: (moment, f"until {written(schedule.end)}"),
        Reason.WRONG_WEEKDAY: (weekday + opened, _days(campaign.weekdays)),
        Reason.OUTSIDE_HOURS: (_wall(campaign, schedule.clock, occasion), _hours(campaign)),
    }
    yield _activity(Reason.INACTIVE, campaign.active)
    for check, passed in schedule.checks(occasion)[1:]:
        yield ExplainedCheck(check, passed, *compared[check])


def _claim_check(
    campaign: CampaignSnapshot, clock: LocalClock, claim: HeldClaim | None, at: float
) -> ExplainedCheck:
    if not campaign.delay:
        return ExplainedCheck(Reason.THROTTLED, True, "no cache delay", "no cache delay")
    needed = f"at least {_duration(campaign.delay)} between two sends"
    if claim is None:
        return ExplainedCheck(Reason.THROTTLED, True, "no claim", needed)
    ends_at = claim.detected_at + campaign.delay
    ends = f"{_duration(ends_at - at)} left" if ends_at > at else "that is over"
    found = f"claimed at {clock.written(claim.detected_at)}, {ends}"
    return ExplainedCheck(Reason.THROTTLED, not at < ends_at, found, needed)


def _next_firing(alone: Target, question: Question, origin: float) -> float | None:
    """The first moment from `origin` on at which the target's only campaign is granted.

    Visits one change of the decision after the other, so the number of steps is bounded.
    """
    (campaign,), (claims, sent, zone) = alone.campaigns, question.history
    if not campaign.weekdays:
        return None
    t = origin
    for _ in range(_MOST_STEPS):
        decision = question._replace(detected_at=t, decided_at=t).decide(alone)
        if decision.granted:
            return t
        if decision.reason not in _BY_TIME:
            return None
        if decision.reason is Reason.THROTTLED:
            t = ceil(claims[campaign.id].detected_at + campaign.delay)
        elif decision.reason is Reason.CAPPED:
            t = ceil(next_place(sent, t, alone.rules.caps))
        else:
            t = alone.phase_at(t, zone).until
        if t == inf:
            return None
    return None
