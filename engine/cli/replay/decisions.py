"""Decides detections against a catalog, each at its own time, and counts decisions and visits.

Resolve looks in the whole catalog. Decide is `rules.decision.decide`, as in the trigger, and visits
are those of rules/visits.py. All claims and what the caps count are in memory, so everything that
`decide` grants holds its claim.
"""

import re
from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import compress, groupby
from math import inf
from typing import NamedTuple

import msgspec

from catalog.index.entries import application_field, geofences_field
from engine.cli.replay.catalogs import ReplayedCampaign, ReplayedCatalog
from engine.kafka.detections import DecodedDetection, GeofenceKey, PlaceKey
from engine.redis.devices import DeviceKey
from engine.trigger.grants import unknown
from engine.trigger.locate import places_of
from engine.trigger.place_cache import IndexedPlace
from rules.decision import decide, with_caps
from rules.geofences import Circle, distance
from rules.model import (
    BeaconSnapshot,
    CampaignSnapshot,
    Decision,
    GeofenceSnapshot,
    Reason,
    Zone,
)
from rules.schedule import LocalClock, fixed_clock, zone_clock
from rules.visits import (
    MARGIN,
    SILENCE,
    Observation,
    VisitBook,
    VisitEvent,
    VisitKind,
    VisitorKey,
    VisitPlace,
    length_class,
    weakest_signal,
)

FLAP_SECONDS = 300.0  # a device that returns sooner had perhaps not left
_SETTING = re.compile(r"(exit|margin)=([0-9.]{1,9})")
_BOUNDS = {"exit": (1.0, 86_400.0), "margin": (0.0, 60.0)}
_QUARTER = 900  # seconds; it lies within one hour of every time zone that is in use
_NO_CLAIMS: Mapping[int, float] = {}


class VisitSettings(NamedTuple):
    """`exit`: the seconds of silence that end a visit, None for those of each venue and company.
    `margin`: how many dB beyond a beacon's reach a signal ends one."""

    exit: float | None = None
    margin: float = MARGIN

    @classmethod
    def parse(cls, text: str) -> "VisitSettings":
        """The settings in the form `exit=60,margin=8`. Raises ValueError."""
        found = cls()
        for part in text.split(","):
            written = _SETTING.fullmatch(part.strip())
            least, most = _BOUNDS[written[1]] if written else (inf, 0.0)
            if written is None or not least <= float(written[2]) <= most:
                raise ValueError(
                    f"{part!r}: accepted: exit=1 to 86400 (seconds), margin=0 to 60 (dB), as in "
                    "exit=60,margin=8"
                )
            found = found._replace(**{written[1]: float(written[2])})
        return found

    @property
    def name(self) -> str:
        """The settings as they are shown."""
        exit_ = "" if self.exit is None else f"exit={self.exit:g},"
        return f"{exit_}margin={self.margin:g}"


class VisitTally(msgspec.Struct):
    """The visits of a kind of place that have begun, and of those that ended the seconds and how
    many there are by length (the classes of LENGTHS). `flaps` are returns within 5 minutes."""

    visits: int = 0
    flaps: int = 0
    seconds: float = 0.0
    lengths: Counter[int] = msgspec.field(default_factory=Counter)


class VisitReplay:
    """Follows devices through detections, each partition of Kafka in its order, as the trigger.

    A file is in order of time for each device only, so time moves for each alone. Visits that began
    before `since` (epoch s) are not in `tallies`.
    """

    def __init__(
        self,
        settings: VisitSettings,
        places: Mapping[PlaceKey | None, IndexedPlace],
        *,
        since: float,
        shift: float,
        max_age: float,
        path_loss_exponent: float,
    ) -> None:
        self.tallies: defaultdict[VisitKind, VisitTally] = defaultdict(VisitTally)
        self._exit = settings.exit
        self._places = places
        self._since = since
        self._shift = shift
        self._max_age = max_age
        self._exponent = path_loss_exponent
        self._books: defaultdict[object, VisitBook] = defaultdict(
            lambda: VisitBook(margin=settings.margin)
        )
        self._left: dict[tuple[VisitorKey, VisitKind, int], float] = {}  # the last exits

    def follow(
        self, detection: DecodedDetection, placed: Collection[DecodedDetection] | Decision
    ) -> None:
        """Note a detection, which is `placed` so, or nowhere."""
        message, record, at = detection.message, detection.record, detection.detected_at
        arrived = arrival(detection, self._shift)
        if at > arrived + self._max_age:
            return
        udid = message.device.udid
        is_live = record.timestamp >= 0
        book = self._books[(record.topic, record.partition) if is_live else udid]
        name = (record.topic, record.partition, record.offset, detection.index)
        seen = Observation(at, arrived, name)
        if isinstance(placed, Decision):
            self._leave(book, (placed.company_id, udid), detection, seen)
            return
        if message.geofence is not None and message.geofence.transition == "exit":
            place = self._places.get(detection.key)
            if place is not None:
                visitor = place.company_reference.id, udid
                self._count(book.leave(visitor, "geofence", message.geofence.id, seen, "reported"))
        for number, each in enumerate(placed):
            place = self._places.get(each.key)
            if place is None or not (place.place.active and place.place.venue.active):
                continue
            visitor = place.company_reference.id, udid
            if not number:
                self._leave(book, visitor, detection, seen)
            found = self._seen(each, place, seen)
            self._count(book.observe(visitor, self._visited(place), found))

    def finish(self) -> None:
        """Nothing more comes: end every visit at its last detection."""
        for book in self._books.values():
            self._count(book.expire(inf))

    def _visited(self, place: IndexedPlace) -> list[VisitPlace]:
        """The place and its venue; a tag is a place of its venue's visits only."""
        venue, rules = place.place.venue, place.rules
        company = None if rules is None else rules.visit_silence
        silence = self._exit or venue.visit_silence or company
        found: list[tuple[VisitKind, int]] = [("venue", venue.id)]
        if isinstance(place.place, BeaconSnapshot):
            found.insert(0, ("beacon", place.place.id))
        elif isinstance(place.place, GeofenceSnapshot):
            found.insert(0, ("geofence", place.place.id))
        return [VisitPlace(kind, id_, (), silence or SILENCE[kind]) for kind, id_ in found]

    def _seen(
        self, detection: DecodedDetection, place: IndexedPlace, seen: Observation
    ) -> Observation:
        reach, message = place.target.reach, detection.message
        if reach is None:
            return seen
        rssi = message.rssi if message.rssi is not None and message.rssi < 0 else None
        in_reach = Zone.UNKNOWN < detection.zone <= reach
        weakest = weakest_signal(reach, message.tx_power, self._exponent)
        return seen._replace(in_reach=in_reach, rssi=rssi, weakest=weakest)

    def _leave(
        self, book: VisitBook, visitor: VisitorKey, detection: DecodedDetection, seen: Observation
    ) -> None:
        """End the visits of geofences that a position is beyond, whatever its error."""
        position = detection.message.position
        for visit in [] if position is None else list(book.of(visitor)):
            known = self._places.get(GeofenceKey(visit.place_id))
            fence = None if known is None else known.place
            if visit.kind != "geofence" or visit.ended_at is not None:
                continue
            if position is None or not isinstance(fence, GeofenceSnapshot):
                continue
            circle = Circle(fence.id, fence.latitude, fence.longitude, fence.radius)
            away = distance(position.latitude, position.longitude, circle)
            if away > fence.radius + (position.accuracy or 0.0):
                self._count(book.leave(visitor, "geofence", fence.id, seen, "signal"))

    def _count(self, events: Iterable[VisitEvent]) -> None:
        for event in events:
            visit = event.visit
            tally, place = self.tallies[visit.kind], (event.visitor, visit.kind, visit.place_id)
            counts = visit.entered_at >= self._since
            if event.type == "enter":
                left = self._left.get(place, -inf)
                tally.visits += counts
                tally.flaps += counts and visit.entered_at - left <= FLAP_SECONDS
            elif event.type == "exit":
                self._left[place] = visit.last_seen
                if counts:
                    seconds = visit.last_seen - visit.entered_at
                    tally.seconds += seconds
                    tally.lengths[length_class(seconds)] += 1


def arrival(detection: DecodedDetection, shift: float) -> float:
    """When its record came, moved by `shift`; for one without a time (of a file), its own time."""
    stamp = detection.record.timestamp
    return stamp / 1000 + shift if stamp >= 0 else detection.detected_at


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


def local_hour(clock: LocalClock, instant: float) -> str:
    """The beginning of the hour of local time that contains an instant (epoch s), as the interface
    writes it: an hour that a clock change repeats is two, with different offsets."""
    written = clock.written(instant)
    return f"{written[:13]}:00:00{written[19:]}"


def _clock(zone: str | None, offset: timedelta | None = None) -> LocalClock:
    """The local time of a zone, else of an offset, else UTC."""
    if zone is None and offset is not None:
        return fixed_clock(offset)
    try:
        return zone_clock(zone or "UTC")
    except ValueError:  # the places leave campaigns of unknown zones out, as the trigger does
        return zone_clock("UTC")


class HourRow(NamedTuple):
    """An hour's detections with one reason: of a campaign, or of a venue that has none, or of
    neither. `campaign_id` is None also for a campaign that is only in a file."""

    company: str
    venue: str
    campaign_id: int | None
    campaign: str | None
    hour: str
    reason: str
    detections: int


class CampaignRow(NamedTuple):
    """A campaign: its notifications, their number of devices, and its decisions by reason.

    `only_here` counts the notifications that the other catalog does not send, and
    `devices_only_here` the devices that the campaign reaches only here.
    """

    company: str
    venue: str
    campaign_id: int | None
    campaign: str
    format: str
    sent: int
    devices: int
    reasons: Mapping[str, int]
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


class Grant(NamedTuple):
    """A campaign that a detection fires."""

    detection: DecodedDetection
    place: IndexedPlace
    campaign: CampaignSnapshot
    named: ReplayedCampaign

    @property
    def identity(self) -> tuple[object, ...]:
        """The same for the same detection and campaign in two catalogs."""
        each = self.detection
        return id(each.record), each.index, each.key, self.named.key


class CatalogReplay:
    """Decides detections in the given order.

    `max_age` is in seconds, and so is `shift`, by which the times of detections were moved. The age
    of a detection is the delay of its record, because the trigger would have decided it on arrival.
    A detection from a file has no record, and is never stale or in the future. `visits` are
    followed if somebody asks for them. `reached` has the devices of each campaign.
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
        self.reached: defaultdict[int, set[str]] = defaultdict(set)
        self.sent = 0
        self._visits = visits
        self._max_age = max_age
        self._shift = shift
        # Not bounded, because a forgotten claim would be granted again.
        self._claims: defaultdict[str, dict[int, float]] = defaultdict(dict)
        self._sent: defaultdict[DeviceKey, list[float]] = defaultdict(list)  # what caps count
        # Many detections share a decision, so there are few different cells.
        self._cells: Counter[tuple[IndexedPlace | None, Decision, float]] = Counter()
        self._only: Counter[int] = Counter()

    def decide(self, detections: Iterable[DecodedDetection], *, counted: bool) -> list[Grant]:
        """Decide detections and take the claims of the grants. Returns the grants.

        Detections of the warm-up are not `counted`: they take claims, but nothing is returned.
        """
        granting: list[Grant] = []
        for detection in detections:
            places = self._placed(detection)
            if self._visits is not None:
                self._visits.follow(detection, places)
            if isinstance(places, Decision):
                if counted:
                    self._cells[None, places, detection.detected_at // _QUARTER] += 1
                continue
            fired: set[int] = set()
            for each in places:
                place = self.catalog.places.get(each.key)
                decision = self._decided(each, place, fired)
                fired.update(campaign.id for campaign in decision.granted)
                if counted:
                    self._cells[place, decision, each.detected_at // _QUARTER] += 1
                if decision.granted and place is not None:
                    self._claim(each, decision)
                    named = self.catalog.campaigns
                    granting += [
                        Grant(each, place, sent, named[sent.id]) for sent in decision.granted
                    ]
        if not counted:
            return []
        self.sent += len(granting)
        for grant in granting:
            self.reached[grant.campaign.id].add(grant.detection.message.device.udid)
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
        self, detection: DecodedDetection, place: IndexedPlace | None, fired: Collection[int]
    ) -> Decision:
        """The decision; `fired` has what the same position fires already."""
        if place is None:
            return unknown(detection.key)
        at, now = detection.detected_at, arrival(detection, self._shift)
        device, target = detection.message.device, place.target
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
        for campaign in decision.granted:
            if campaign.delay > 0:
                held = self._claims[udid]
                held[campaign.id] = max(at, held.get(campaign.id, at))
            if not campaign.ignores_caps:
                insort(self._sent[DeviceKey(decision.company_id, udid)], at)

    def note_only(self, mine: Sequence[Grant], theirs: Sequence[Grant]) -> list[bool]:
        """Count the grants that another catalog does not have. Returns which they are."""
        known = {each.identity for each in theirs}
        alone = [each.identity not in known for each in mine]
        self._only.update(each.campaign.id for each in compress(mine, alone))
        return alone

    def outcome(self, other: "CatalogReplay | None" = None) -> Outcome:
        """The results, once all is decided; in a comparison with those of the other catalog."""
        if self._visits is not None:
            self._visits.finish()
        detections, hours = Counter[Reason](), Counter[HourRow]()
        reasons: defaultdict[int, Counter[str]] = defaultdict(Counter)
        for (place, decision, quarter), count in self._cells.items():
            detections[decision.reason] += count
            for id_, row in self._rows_of(place, decision, quarter * _QUARTER):
                hours[row] += count
                reasons[id_][row.reason] += count
        theirs: Mapping[object, set[str]] = {}
        if other is not None:
            known = other.catalog.campaigns.items()
            theirs = {each.key: other.reached[id_] for id_, each in known}
        campaigns = [  # also those without any detection
            CampaignRow(
                *(each.company, each.venue, each.id, each.name, each.format),
                reasons[id_][Reason.GRANTED],
                len(self.reached[id_]),
                dict(reasons[id_].most_common()),
                None if other is None else self._only[id_],
                None if other is None else len(self.reached[id_] - theirs.get(each.key, set())),
            )
            for id_, each in self.catalog.campaigns.items()
        ]
        rows = [row._replace(detections=count) for row, count in hours.items()]
        return Outcome(
            self.catalog.name,
            dict(detections.most_common()),
            self.sent,
            len(set().union(*self.reached.values())),
            sorted(campaigns, key=lambda row: (-row.sent, row.company, row.venue, row.campaign)),
            sorted(rows, key=lambda row: (*row[:2], row.campaign or "", row[2] or 0, *row[4:])),
            {} if self._visits is None else self._visits.tallies,
        )

    def _rows_of(
        self, place: IndexedPlace | None, decision: Decision, instant: float
    ) -> Iterator[tuple[int, HourRow]]:
        """Rows without a count, and the ids of their campaigns, 0 for none: of each campaign of
        the place with its reason, or the whole detection's."""
        if place is None or not place.campaigns:
            names, zone = ("", ""), None
            if place is not None:
                names, zone = (
                    self.catalog.venues[place.target.venue.id],
                    place.target.venue.time_zone,
                )
            hour = local_hour(_clock(zone), instant)
            yield 0, HourRow(*names, None, None, hour, decision.reason.value, 0)
            return
        reasons = dict(decision.by_campaign)
        for each in place.campaigns:
            hour = local_hour(_clock(each.time_zone, each.start.utcoffset()), instant)
            named = self.catalog.campaigns[each.id]
            reason = reasons.get(each.id, decision.reason).value
            yield (
                each.id,
                HourRow(named.company, named.venue, named.id, named.name, hour, reason, 0),
            )
