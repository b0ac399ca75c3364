"""Decides which campaigns a detection fires: for live traffic, for replays and for explanations.

A phase is a stretch of time in which the same campaigns of a target are open. A phase is computed
once per change, so the cost of a detection does not grow with the number of closed campaigns.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import inf

import msgspec

from rules.model import (
    BeaconSnapshot,
    CampaignSnapshot,
    Decision,
    Place,
    PlaceKind,
    Reason,
    VenueSnapshot,
    Zone,
)
from rules.schedule import Verdict, schedule_of

_RANK = {reason: rank for rank, reason in enumerate(Reason)}
_UNKNOWN = Zone.UNKNOWN


class Phase:
    """The open and the closed campaigns of a target from `since` up to, not including, `until`.

    `caps` has (id, delay, campaign) of each open campaign, `closed_campaigns` the ids of the closed
    ones by reason, in the order of the checks. `none_granted` and `all_granted` are the two
    decisions that nearly all detections share. `mark` is an object of its own: by it the phase is
    known again without being kept.
    """

    __slots__ = (
        "_company_id",
        "all_granted",
        "caps",
        "closed",
        "closed_campaigns",
        "mark",
        "none_granted",
        "open",
        "since",
        "until",
    )

    def __init__(
        self,
        since: float,
        until: float,
        open_: tuple[CampaignSnapshot, ...],
        closed: Mapping[Reason, Sequence[int]],
        company_id: int,
    ) -> None:
        self._company_id = company_id
        self.mark = object()
        self.since = since
        self.until = until
        self.open = open_
        self.closed_campaigns = closed
        self.closed = tuple((reason, len(numbers)) for reason, numbers in closed.items())
        # A delay of minus infinity throttles nothing, whenever the last send was.
        self.caps = tuple((c.id, c.delay if c.delay > 0 else -inf, c) for c in open_)
        self.none_granted = self.decision(())
        self.all_granted = self.decision(open_)

    def decision(self, granted: tuple[CampaignSnapshot, ...]) -> Decision:
        """The decision that grants `granted` and throttles the other open campaigns."""
        throttled = len(self.open) - len(granted)
        reason, closed = self._furthest(granted, throttled), self.closed_campaigns
        return Decision(
            reason, self.closed, throttled, granted, self.open, closed, self._company_id
        )

    def granting(self, granted: tuple[CampaignSnapshot, ...]) -> Decision:
        """The decision that grants these open campaigns; all and none of them share one each."""
        if not granted:
            return self.none_granted
        if len(granted) == len(self.open):
            return self.all_granted
        return self.decision(granted)

    def throttled_until(self, held: Mapping[int, float]) -> float:
        """The first time at which a campaign is granted to a device that holds these claims.

        All open campaigns must be throttled now.
        """
        return min((held[number] + delay for number, delay, _ in self.caps), default=inf)

    def _furthest(self, granted: tuple[CampaignSnapshot, ...], throttled: int) -> Reason:
        if granted:
            return Reason.GRANTED
        if throttled:
            return Reason.THROTTLED
        return self.closed[-1][0] if self.closed else Reason.NO_CAMPAIGN


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


UNKNOWN_BEACON = refusal(Reason.UNKNOWN_BEACON)
# The decision about a place that the index does not have, by its kind.
UNKNOWN: Mapping[PlaceKind, Decision] = {
    "beacon": UNKNOWN_BEACON,
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

    `kind` says which. `reach` is the farthest zone that triggers, None for a target without zones.
    `refusal` is the decision about every detection, whatever its zone and time, if there is one.
    `has_connector` says whether the company has set up a connector.
    """

    __slots__ = (
        "_before",
        "_schedules",
        "active",
        "current",
        "has_connector",
        "kind",
        "reach",
        "refusal",
        "refusals",
        "venue",
    )

    def __init__(
        self,
        venue: VenueSnapshot,
        active: bool,
        reach: Zone | None,
        campaigns: Sequence[CampaignSnapshot],
        has_connector: bool = True,
        kind: PlaceKind = "beacon",
    ) -> None:
        """The campaigns are ordered by priority, then by id.

        Raises ValueError for a campaign whose time zone is not known.
        """
        self.venue = venue
        self.active = active
        self.reach = reach
        self.kind = kind
        self.refusals = _refusals_of(venue.company_id)
        self.refusal = self._refusal(campaigns)
        self.current = _NEVER
        self._before = _NEVER
        self.has_connector = has_connector
        ordered = sorted(campaigns, key=lambda campaign: (-campaign.priority, campaign.id))
        self._schedules = tuple((schedule_of(campaign), campaign) for campaign in ordered)

    @classmethod
    def of_place(
        cls,
        place: Place,
        campaigns: Sequence[CampaignSnapshot],
        has_connector: bool = True,
    ) -> "Target":
        """A place as a target. `campaigns` are all that are aimed at it, active or not."""
        reach = place.reach if isinstance(place, BeaconSnapshot) else None
        return cls(place.venue, place.active, reach, campaigns, has_connector, place.kind)

    @property
    def has_campaigns(self) -> bool:
        """Whether any campaign is aimed at it, open or not."""
        return bool(self._schedules)

    @property
    def campaigns(self) -> tuple[CampaignSnapshot, ...]:
        """The campaigns that are aimed at the target, open or not."""
        return tuple(campaign for _, campaign in self._schedules)

    def with_campaigns(self, *campaigns: CampaignSnapshot) -> "Target":
        """The target with these campaigns instead. With one campaign, a decision is its outcome."""
        made = (self.venue, self.active, self.reach, campaigns, self.has_connector, self.kind)
        return Target(*made)

    def phase_at(self, t: float) -> Phase:
        """The phase around `t` (epoch seconds); the last two computed phases are remembered."""
        for phase in (self.current, self._before):
            if phase.since <= t < phase.until:
                return phase
        self._before, self.current = self.current, self._compute_phase(t)
        return self.current

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
        if not self.active:
            return refusal(INACTIVE[self.kind], self.venue.company_id)
        return None if campaigns else self.refusals.no_campaign

    def _with_connector(self, verdict: Verdict, campaign: CampaignSnapshot) -> Verdict:
        """Refuse an open campaign of format connector whose company has no connector.

        This is the last check whose result is the same for every device.
        """
        if self.has_connector or campaign.format != "connector" or verdict.reason is not None:
            return verdict
        return verdict._replace(reason=Reason.NO_CONNECTOR)


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
    target: Target | None,
    zone: Zone,
    detected_at: float,
    now: float,
    max_age: float,
    held: Mapping[int, float],
) -> Decision:
    """Which campaigns a detection fires; if it fires none, why not.

    Times are epoch seconds, `max_age` is in seconds. `held` has, by campaign id, the detected_at of
    the newest known send to this device. The function is pure, except that the target remembers
    phases. The first check that fails is the decision's reason; the order is a contract.
    """
    if target is None:
        return UNKNOWN_BEACON
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
    if not phase.since <= detected_at < phase.until:
        phase = target.phase_at(detected_at)
    if not held:
        return phase.granting(phase.open)
    granted = []
    for campaign_id, delay, campaign in phase.caps:
        if campaign_id in held and detected_at < held[campaign_id] + delay:
            continue
        granted.append(campaign)
    return phase.granting(tuple(granted))
