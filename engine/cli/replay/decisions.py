"""Decides detections against a catalog, each at its own time, and counts the decisions.

Resolve looks in the whole catalog. Decide is `rules.decision.decide`, as in the trigger. All claims
and what the caps count are in memory, so everything that `decide` grants holds its claim.
"""

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from itertools import groupby
from math import inf
from typing import NamedTuple

from catalog.index.entries import application_field, geofences_field
from engine.cli.replay.catalogs import (
    ReplayedCampaign,
    ReplayedCatalog,
    VenueNames,
    campaign_clock,
    venue_clock,
)
from engine.cli.replay.visits import VisitReplay, VisitTally
from engine.kafka.detections import DecodedDetection
from engine.redis.devices import DeviceKey
from engine.trigger.grants import unknown
from engine.trigger.locate import places_of
from engine.trigger.place_cache import IndexedPlace
from rules.decision import decide, with_caps
from rules.model import CampaignSnapshot, Decision, Reason
from rules.schedule import LocalClock, zone_clock
from rules.visits import VisitKind

_HOUR = 3600
_QUARTER = 900  # seconds; it lies within one hour of every time zone that is in use
_NOWHERE = VenueNames("", "")
_NO_CLAIMS: Mapping[int, float] = {}


class ReplayPeriod(NamedTuple):
    """From `since` up to, not including, `until`, in epoch seconds.

    Detections between `warm_up` and `since` are decided but not counted, so that their claims are
    known.
    """

    since: float = -inf
    until: float = inf
    warm_up: float = -inf

    @property
    def begins_cold(self) -> bool:
        """Whether the claims from before the period are unknown."""
        return self.since > -inf and self.warm_up >= self.since

    def parts(
        self, detections: list[DecodedDetection]
    ) -> Iterator[tuple[bool, Iterable[DecodedDetection]]]:
        """The detections of the period and its warm-up, in order, and whether they count."""
        within = (each for each in detections if self.warm_up <= each.detected_at < self.until)
        yield from groupby(within, lambda each: each.detected_at >= self.since)


class LocalHour(NamedTuple):
    """An hour of local time.

    `wall` is its beginning, in seconds since 1970-01-01 00:00 local time. `offset` is the offset
    from UTC in seconds: an hour that a clock change repeats has two.
    """

    wall: int
    offset: int

    @property
    def written(self) -> str:
        """The beginning of the hour, in the interface's format."""
        zone = timezone(timedelta(seconds=self.offset))
        at = datetime.fromtimestamp(self.wall - self.offset, UTC).astimezone(zone)
        return f"{at:%Y-%m-%dT%H:%M:%S%z}"


def local_hour(clock: LocalClock, instant: int) -> LocalHour:
    """The hour of local time that contains an instant (epoch s)."""
    offset = clock.stretch_at(instant).offset
    wall = instant + offset
    return LocalHour(wall - wall % _HOUR, offset)


class TallyKey(NamedTuple):
    """The key under which detections are counted together.

    Without a campaign at the beacon it has the venue; for an unknown beacon it has neither.
    """

    campaign_id: int | None
    venue_id: int | None
    hour: LocalHour
    reason: Reason


class Grant(NamedTuple):
    """A campaign that a detection fires."""

    detection: DecodedDetection
    beacon: IndexedPlace
    campaign: CampaignSnapshot

    @property
    def udid(self) -> str:
        """The udid of the detected device."""
        return self.detection.message.device.udid


class CatalogReplay:
    """Decides detections in the given order. Call `fold` before reading the counts.

    `counts` has the decisions of campaigns. `detections` counts each detection once, by the
    furthest check that any campaign reached, as the metric detections_total does. `reached` has
    the devices of each campaign.

    `max_age` is in seconds, and so is `shift`, by which the times of detections were moved. The age
    of a detection is the delay of its record, because the trigger would have decided it on arrival.
    A detection from a file has no record, and is never stale or in the future. `visits` are
    followed if somebody asks for them.
    """

    def __init__(
        self,
        catalog: ReplayedCatalog,
        *,
        max_age: float,
        shift: float = 0.0,
        visits: VisitReplay | None = None,
    ) -> None:
        self.catalog = catalog
        self.visits = visits
        self.counts: Counter[TallyKey] = Counter()
        self.detections: Counter[Reason] = Counter()
        self.reached: defaultdict[int, set[str]] = defaultdict(set)
        self.sent = 0
        self._max_age = max_age
        self._shift = shift
        # Not bounded, because a forgotten claim would be granted again.
        self._claims: dict[str, dict[int, float]] = {}
        self._sent: defaultdict[DeviceKey, list[float]] = defaultdict(list)  # what caps count
        # Many detections share a decision, so there are few different cells.
        self._cells: Counter[tuple[IndexedPlace | None, Decision, float]] = Counter()

    def decide(self, detections: Iterable[DecodedDetection], *, counted: bool) -> list[Grant]:
        """Decide detections and take the claims of the grants. Returns the grants.

        Detections of the warm-up are not `counted`: they take claims, but nothing is returned.
        """
        granting: list[Grant] = []
        for detection in detections:
            places = self._placed(detection)
            if self.visits is not None:
                self.visits.follow(detection, places)
            fired: set[int] = set()
            if isinstance(places, Decision):
                if counted:
                    self._cells[None, places, detection.detected_at // _QUARTER] += 1
                continue
            for each in places:
                beacon = self.catalog.places.get(each.key)
                decision = self._decided(each, beacon, fired)
                fired.update(campaign.id for campaign in decision.granted)
                if counted:
                    self._cells[beacon, decision, each.detected_at // _QUARTER] += 1
                if decision.granted and beacon is not None:
                    self._claim(each, decision)
                    if counted:
                        granting += [Grant(each, beacon, sent) for sent in decision.granted]
        self.sent += len(granting)
        for grant in granting:
            self.reached[grant.campaign.id].add(grant.udid)
        return granting

    def _placed(self, detection: DecodedDetection) -> Collection[DecodedDetection] | Decision:
        """The detection at each of its places, as the trigger finds them."""
        message, data = detection.message, self.catalog.company_data
        if message.geofence is not None and message.geofence.transition == "exit":
            return ()
        if message.tag is None and message.position is None:
            return (detection,)
        owner = data.get(application_field(message.api_key or ""))
        return places_of(detection, owner, owner and data.get(geofences_field(owner.company_id)))

    def _decided(
        self, detection: DecodedDetection, beacon: IndexedPlace | None, fired: Collection[int]
    ) -> Decision:
        """The decision; `fired` has what the same position fires already."""
        if beacon is None:
            return unknown(detection.key)
        at, arrived_at = detection.detected_at, detection.record.timestamp
        now = at if arrived_at < 0 else arrived_at / 1000 + self._shift  # NaN in a file
        device, target = detection.message.device, beacon.target
        key = DeviceKey(target.venue.company_id, device.udid)
        zone = device.time_zone or self.catalog.time_zones.get(key)
        held = self._claims.get(device.udid, _NO_CLAIMS)
        decision = decide(target, detection.zone, at, now, self._max_age, held, zone)
        granted = tuple(each for each in decision.granted if each.id not in fired)
        if len(granted) < len(decision.granted):
            decision = target.phase_at(at, zone).granting(granted)
        return with_caps(decision, target, at, self._sent.get(key, ()), zone)

    def _claim(self, detection: DecodedDetection, decision: Decision) -> None:
        at, udid = detection.detected_at, detection.message.device.udid
        held = self._claims.setdefault(udid, {})
        for campaign in decision.granted:
            if campaign.delay > 0:
                held[campaign.id] = max(at, held.get(campaign.id, at))
            if not campaign.ignores_caps:
                insort(self._sent[DeviceKey(decision.company_id, udid)], at)

    def campaign_of(self, grant: Grant) -> ReplayedCampaign:
        """The campaign of a grant."""
        return self.catalog.campaigns[grant.campaign.id]

    def fold(self) -> None:
        """Add the cells to the counts."""
        for (beacon, decision, quarter), count in self._cells.items():
            self.detections[decision.reason] += count
            for key in _keys(beacon, decision, int(quarter) * _QUARTER):
                self.counts[key] += count
        self._cells.clear()


def _keys(beacon: IndexedPlace | None, decision: Decision, instant: int) -> Iterator[TallyKey]:
    """A key for each campaign of the beacon, with the campaign's reason or the detection's."""
    if beacon is None:
        yield TallyKey(None, None, local_hour(zone_clock("UTC"), instant), decision.reason)
    elif not beacon.campaigns:
        venue = beacon.target.venue
        yield TallyKey(None, venue.id, local_hour(venue_clock(venue), instant), decision.reason)
    else:
        reasons = dict(decision.by_campaign)
        for campaign in beacon.campaigns:
            hour = local_hour(campaign_clock(campaign), instant)
            yield TallyKey(campaign.id, None, hour, reasons.get(campaign.id, decision.reason))


class CatalogComparison:
    """Counts the grants that only one of two replays has, in `only`: for each, by campaign id."""

    def __init__(self, first: CatalogReplay, second: CatalogReplay) -> None:
        self.only: tuple[Counter[int], Counter[int]] = (Counter(), Counter())
        self._replays = (first, second)

    def note(self, *sent: Sequence[Grant]) -> list[set[int]]:
        """The grants of both for the same detections. Returns, for each, the positions of those
        that the other does not have."""
        keys = [
            [(id(each.detection), replay.campaign_of(each).key) for each in grants]
            for replay, grants in zip(self._replays, sent, strict=True)
        ]
        found = []
        for number, grants in enumerate(sent):
            others = set(keys[1 - number])
            alone = {at for at, key in enumerate(keys[number]) if key not in others}
            self.only[number].update(grants[at].campaign.id for at in alone)
            found.append(alone)
        return found

    def devices_only(self, number: int, campaign: ReplayedCampaign, id_: int) -> int:
        """The number of devices that a campaign reaches only in this one of the replays."""
        mine, other = self._replays[number], self._replays[1 - number]
        theirs = (i for i, each in other.catalog.campaigns.items() if each.key == campaign.key)
        return len(mine.reached[id_] - other.reached[next(theirs, -1)])


class HourRow(NamedTuple):
    """The detections of an hour with one reason, for a campaign, or at a beacon without one."""

    place: VenueNames
    campaign: ReplayedCampaign | None
    hour: LocalHour
    reason: Reason
    detections: int


class CampaignRow(NamedTuple):
    """A campaign: its notifications, their number of devices, and its decisions by reason.

    `only_here` counts the notifications that the other catalog does not send.
    """

    campaign: ReplayedCampaign
    sent: int
    devices: int
    reasons: Mapping[Reason, int]
    only_here: int | None
    devices_only_here: int | None


class Outcome(NamedTuple):
    """The results for one catalog: `detections` by the furthest check that any campaign reached.

    `visits` is empty unless they were followed.
    """

    name: str
    detections: Mapping[Reason, int]
    sent: int
    devices: int
    campaigns: Sequence[CampaignRow]
    rows: Sequence[HourRow]
    visits: Mapping[VisitKind, VisitTally] = {}


def outcome_of(
    replay: CatalogReplay, comparison: CatalogComparison | None = None, number: int = 0
) -> Outcome:
    """The outcome of a replay: of the first catalog (0) or, in a comparison, of the second (1)."""
    replay.fold()
    if replay.visits is not None:
        replay.visits.finish()
    reasons: defaultdict[int | None, Counter[Reason]] = defaultdict(Counter)
    rows = []
    for (id_, venue_id, hour, reason), count in replay.counts.items():
        reasons[id_][reason] += count
        campaign = None if id_ is None else replay.catalog.campaigns[id_]
        place = _NOWHERE if venue_id is None else replay.catalog.venues[venue_id]
        rows.append(HourRow(campaign.place if campaign else place, campaign, hour, reason, count))
    campaigns = [  # also those without any detection
        CampaignRow(
            campaign,
            reasons[id_][Reason.GRANTED],
            len(replay.reached[id_]),
            dict(reasons[id_].most_common()),
            None if comparison is None else comparison.only[number][id_],
            None if comparison is None else comparison.devices_only(number, campaign, id_),
        )
        for id_, campaign in replay.catalog.campaigns.items()
    ]
    return Outcome(
        replay.catalog.name,
        dict(replay.detections.most_common()),
        replay.sent,
        len(set().union(*replay.reached.values())),
        sorted(campaigns, key=lambda row: (-row.sent, row.campaign.place, row.campaign.name)),
        sorted(rows, key=_order),
        {} if replay.visits is None else replay.visits.tallies,
    )


def _order(row: HourRow) -> tuple[VenueNames, str, int, LocalHour, str]:
    campaign = row.campaign
    names = ("", 0) if campaign is None else (campaign.name, campaign.id or 0)
    return row.place, *names, row.hour, row.reason
