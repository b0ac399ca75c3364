"""Decides which campaigns a detection fires: for live traffic, for replays and for explanations.

A phase is a stretch of time in which the same campaigns of a target are open. A phase is computed
once per change, so the cost of a detection does not grow with the number of closed campaigns.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import inf
from operator import attrgetter

import msgspec

from rules.model import (
    BeaconSnapshot,
    Campaigns,
    CampaignSnapshot,
    CompanyRules,
    Decision,
    FiresOn,
    Place,
    PlaceKind,
    Reason,
    Zone,
)
from rules.schedule import Verdict, quiet_schedule, schedule_of

_RANK = {reason: rank for rank, reason in enumerate(Reason)}
_UNKNOWN = Zone.UNKNOWN
# The time zone of a device that nobody was asked for yet: quiet hours are not checked.
NOT_ASKED = ""
_MOST_ZONES = 64  # whose phases a target remembers


class Phase:
    """The open and the closed campaigns of a target from `since` up to, not including, `until`.

    `delays` has (id, delay, campaign) of each open campaign, `closed_campaigns` the ids of the
    others by reason, in the order of the checks. `none_granted` and `all_granted` are the two
    decisions that nearly all detections share.
    """

    __slots__ = (
        "_company_id",
        "all_granted",
        "closed",
        "closed_campaigns",
        "delays",
        "none_granted",
        "open",
        "since",
        "until",
    )

    def __init__(
        self,
        since: float,
        until: float,
        open_: Campaigns,
        closed: Mapping[Reason, Sequence[int]],
        company_id: int,
    ) -> None:
        self._company_id = company_id
        self.since = since
        self.until = until
        self.open = open_
        self.closed_campaigns = closed
        self.closed = tuple((reason, len(numbers)) for reason, numbers in closed.items())
        # A delay of minus infinity throttles nothing, whenever the last send was.
        self.delays = tuple((c.id, c.delay if c.delay > 0 else -inf, c) for c in open_)
        self.none_granted = self.decision(())
        self.all_granted = self.decision(open_)

    def decision(self, granted: Campaigns, capped: Campaigns = ()) -> Decision:
        """The decision that grants `granted`, caps `capped`, and throttles the other open ones."""
        throttled = len(self.open) - len(granted) - len(capped)
        reason = self.closed[-1][0] if self.closed else Reason.NO_CAMPAIGN
        reached = (throttled, Reason.THROTTLED), (capped, Reason.CAPPED), (granted, Reason.GRANTED)
        for any_, furthest in reached:
            reason = furthest if any_ else reason
        closed, company = self.closed_campaigns, self._company_id
        return Decision(reason, self.closed, throttled, granted, self.open, closed, company, capped)

    def granting(self, granted: Campaigns, capped: Campaigns = ()) -> Decision:
        """The same decision; all and none of the open campaigns share one each."""
        if capped or 0 < len(granted) < len(self.open):
            return self.decision(granted, capped)
        return self.all_granted if granted else self.none_granted


_NEVER = Phase(inf, -inf, (), {}, 0)


class DetectionRefusals(msgspec.Struct, frozen=True, eq=False):
    """The decisions about detections that are refused before any campaign is checked, which all
    places of a company share."""

    inactive_venue: Decision
    no_campaign: Decision
    unknown_proximity: Decision
    too_far: Decision
    stale: Decision
    future: Decision


@lru_cache(maxsize=4096)
def _refusals_of(company_id: int) -> DetectionRefusals:
    names = DetectionRefusals.__struct_fields__
    return DetectionRefusals(*(refusal(Reason(name), company_id) for name in names))


@lru_cache(maxsize=4096)
def refusal(reason: Reason, company_id: int = 0) -> Decision:
    """The decision about a detection that one check refuses; `company_id` as in Decision."""
    return Decision(reason, ((reason, 1),), company_id=company_id)


# The decision about a place that the index does not have, by its kind.
UNKNOWN: Mapping[PlaceKind, Decision] = {
    "beacon": refusal(Reason.UNKNOWN_BEACON),
    "geofence": refusal(Reason.UNKNOWN_GEOFENCE),
    "nfc": refusal(Reason.UNKNOWN_TAG),
    "qrcode": refusal(Reason.UNKNOWN_TAG),
}

# The reason of the refusal by an inactive place, by its kind.
INACTIVE: Mapping[PlaceKind, Reason] = {
    "beacon": Reason.INACTIVE_BEACON,
    "geofence": Reason.INACTIVE_GEOFENCE,
    "nfc": Reason.INACTIVE_TAG,
    "qrcode": Reason.INACTIVE_TAG,
}


class Target:
    """The object that campaigns are aimed at: a beacon, geofence, NFC tag or QR code.

    `reach` is the farthest zone that triggers, None for a target without zones.
    `refusal` is the decision about every detection, whatever its zone and time, if there is one.
    `has_connector` says whether the company has set up a connector; `rules` are the company's.
    `fires_on` is what happens at it: a detection, or a moment of a visit with the minutes that a
    dwell has reached.
    """

    __slots__ = (
        "_at_moments",
        "_before",
        "_in_zones",
        "_schedules",
        "current",
        "fires_on",
        "has_connector",
        "place",
        "reach",
        "refusal",
        "refusals",
        "rules",
        "venue",
    )

    def __init__(
        self,
        place: Place,
        campaigns: Sequence[CampaignSnapshot],
        has_connector: bool = True,
        rules: CompanyRules | None = None,
        fires_on: tuple[FiresOn, int] = ("detection", 0),
    ) -> None:
        """`campaigns` are all that are aimed at the place: by priority, then by id.

        Raises ValueError for a campaign whose time zone is not known.
        """
        self.place = place
        self.venue = venue = place.venue
        self.reach: Zone | None = None
        if isinstance(place, BeaconSnapshot) and fires_on[0] == "detection":
            self.reach = place.reach
        self.rules = rules or CompanyRules(company_id=venue.company_id)
        self.refusals = _refusals_of(venue.company_id)
        self.refusal = self._refusal(campaigns)
        self.current = _NEVER
        self._before = _NEVER
        self._in_zones: dict[str | None, Phase] = {}
        self.has_connector = has_connector
        self.fires_on = fires_on
        self._at_moments: dict[tuple[FiresOn, int], Target] = {}
        ordered = sorted(campaigns, key=attrgetter("precedence"))
        self._schedules = tuple((schedule_of(campaign), campaign) for campaign in ordered)

    @property
    def campaigns(self) -> tuple[CampaignSnapshot, ...]:
        """The campaigns that are aimed at the target, open or not."""
        return tuple(campaign for _, campaign in self._schedules)

    def with_campaigns(self, *campaigns: CampaignSnapshot) -> "Target":
        """The target with these campaigns instead. With one campaign, a decision is its outcome."""
        return Target(self.place, campaigns, self.has_connector, self.rules, self.fires_on)

    def at_moment(self, moment: FiresOn, minutes: int) -> "Target":
        """The same target at a moment of a visit, whatever the zone."""
        at = moment, minutes
        if at not in self._at_moments:
            made = Target(self.place, self.campaigns, self.has_connector, self.rules, at)
            self._at_moments[at] = made
        return self._at_moments[at]

    def phase_at(self, t: float, time_zone: str | None = None) -> Phase:
        """The phase around `t` (epoch seconds) for devices in this zone; None if it is unknown.

        The last phases that were computed are remembered.
        """
        for phase in (self.current, self._before):
            if phase.since <= t < phase.until:
                break
        else:
            phase = self._compute_phase(t)
            self._before, self.current = self.current, phase
        if self.rules.quiet_hours is None or not phase.open or time_zone == NOT_ASKED:
            return phase
        quiet = self._in_zones.get(time_zone, _NEVER)
        if not quiet.since <= t < quiet.until:
            if len(self._in_zones) >= _MOST_ZONES:
                self._in_zones.clear()
            quiet = self._in_zones[time_zone] = self._in_zone(phase, t, time_zone)
        return quiet

    def zones(self, time_zone: str | None) -> tuple[str | None, ...]:
        """The zones of the quiet hours for a device, the first that is known counts."""
        return time_zone, self.venue.time_zone, self.rules.time_zone

    def _in_zone(self, phase: Phase, t: float, time_zone: str | None) -> Phase:
        """The part of the phase around `t` with one answer of the quiet hours."""
        schedule = quiet_schedule(self.rules.quiet_hours, self.zones(time_zone))
        if schedule is None:
            return phase
        reason, since, until = schedule.verdict(t)
        held_back = [each.id for each in phase.open if reason and not each.ignores_quiet_hours]
        closed = phase.closed_campaigns
        return Phase(
            max(since, phase.since),
            min(until, phase.until),
            tuple(each for each in phase.open if each.id not in held_back),
            {**closed, Reason.QUIET_HOURS: held_back} if held_back else closed,
            self.venue.company_id,
        )

    def _compute_phase(self, t: float) -> Phase:
        verdicts = [
            (self._with_connector(schedule.verdict(t), campaign), campaign)
            for schedule, campaign in self._schedules
        ]
        return Phase(
            max((verdict.since for verdict, _ in verdicts), default=-inf),
            min((verdict.until for verdict, _ in verdicts), default=inf),
            tuple(campaign for verdict, campaign in verdicts if verdict.reason is None),
            _by_reason(verdicts),
            self.venue.company_id,
        )

    def _refusal(self, campaigns: Sequence[CampaignSnapshot]) -> Decision | None:
        """The first checks of all: they look at nothing of the detection but its place."""
        if not self.venue.active:
            return self.refusals.inactive_venue
        if not self.place.active:
            return refusal(INACTIVE[self.place.kind], self.venue.company_id)
        return None if campaigns else self.refusals.no_campaign

    def _with_connector(self, verdict: Verdict, campaign: CampaignSnapshot) -> Verdict:
        """Refuse an open campaign of format connector whose company has no connector, and one that
        fires on something else. These are the last checks that are the same for every device.
        """
        if verdict.reason is not None:
            return verdict
        if not self.has_connector and campaign.format == "connector":
            return verdict._replace(reason=Reason.NO_CONNECTOR)
        if (campaign.on, campaign.dwell_minutes or 0) != self.fires_on:
            return verdict._replace(reason=Reason.NOT_ENTERED)
        return verdict


def _by_reason(
    verdicts: Iterable[tuple[Verdict, CampaignSnapshot]],
) -> dict[Reason, list[int]]:
    """The ids of the campaigns that are closed, in the order of the checks."""
    found: dict[Reason, list[int]] = {}
    for verdict, campaign in verdicts:
        if verdict.reason is not None:
            found.setdefault(verdict.reason, []).append(campaign.id)
    return dict(sorted(found.items(), key=lambda closed: _RANK[closed[0]]))


def decide(  # noqa: C901  the order of all checks is to be read in one place
    target: Target,
    zone: Zone,
    detected_at: float,
    now: float,
    max_age: float,
    held: Mapping[int, float],
    time_zone: str | None = None,
) -> Decision:
    """Which campaigns a detection fires; if it fires none, why not. Caps are not looked at.

    Times are epoch seconds, `max_age` is in seconds. `held` has, by campaign id, the detected_at of
    the newest known send to this device; `time_zone` is the device's. The function is pure, except
    that the target remembers phases. The first check that fails is the decision's reason; the order
    is a contract.
    """
    if target.refusal is not None:
        return target.refusal
    reach = target.reach
    if reach is not None:
        if zone is _UNKNOWN:
            return target.refusals.unknown_proximity
        if zone > reach:
            return target.refusals.too_far
    if detected_at < now - max_age:
        return target.refusals.stale
    if detected_at > now + max_age:
        return target.refusals.future
    phase = target.current
    if not phase.since <= detected_at < phase.until or target.rules.quiet_hours is not None:
        phase = target.phase_at(detected_at, time_zone)
    if not held:
        return phase.granting(phase.open)
    granted = []
    for campaign_id, delay, campaign in phase.delays:
        if campaign_id in held and detected_at < held[campaign_id] + delay:
            continue
        granted.append(campaign)
    return phase.granting(tuple(granted))
