"""Decides detections against a catalog, each at its own time, and counts decisions and visits.

Resolve looks in the whole catalog. Decide is `rules.decision.decide`, as in the trigger, and visits
are those of rules/visits.py. All claims and what the caps count are in memory, so everything that
`decide` grants holds its claim.
"""

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from catalog.index.entries import application_field, geofences_field
from engine.cli.replay.catalogs import ReplayedCatalog
from engine.kafka.detections import DecodedDetection
from engine.redis.devices import DeviceKey
from engine.redis.visits import PendingEvent
from engine.trigger.grants import DecidedDetection, at_place, unknown
from engine.trigger.locate import is_exit, places_of
from engine.trigger.place_cache import IndexedPlace, visited_at
from engine.trigger.visits import (
    at_moment,
    follow_detection,
    key_of_visit,
    moments_of,
    observation,
)
from rules.caps import refusing_cap
from rules.decision import decide
from rules.model import CampaignSnapshot, Decision, Reason
from rules.schedule import schedule_of
from rules.visits import (
    LENGTHS,
    MARGIN,
    VisitBook,
    VisitEvent,
    VisitKind,
    VisitorKey,
    VisitPlace,
    length_class,
)

FLAP_SECONDS = 300.0  # a device that returns sooner had perhaps not left
_ACCEPTED = "exit=1 to 86400 (seconds), margin=0 to 60 (dB), as in exit=60,margin=8"
_NO_CLAIMS: Mapping[int, float] = {}


class VisitSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`exit`: the seconds of silence that end a visit, None for those of each venue and company.
    `margin`: how many dB beyond a beacon's reach a signal ends one."""

    exit: Annotated[float, msgspec.Meta(ge=1, le=86_400)] | None = None
    margin: Annotated[float, msgspec.Meta(ge=0, le=60)] = MARGIN

    @classmethod
    def parse(cls, text: str) -> "VisitSettings":
        """The settings in the form `exit=60,margin=8`. Raises ValueError."""
        given = dict(part.strip().partition("=")[::2] for part in text.split(","))
        try:
            return msgspec.convert(given, cls, strict=False)
        except msgspec.ValidationError as error:
            raise ValueError(f"{error}; accepted: {_ACCEPTED}") from None


class VisitTally(msgspec.Struct):
    """The visits of a kind of place that have begun, and of those that ended the seconds and how
    many there are by length (the classes of LENGTHS). `flaps` are returns within 5 minutes."""

    visits: int = 0
    flaps: int = 0
    seconds: float = 0.0
    lengths: Counter[int] = msgspec.field(default_factory=Counter)


@dataclass
class VisitReplay:
    """Follows devices through detections, each partition of Kafka in its order, as the trigger.

    A file is in order of time for each device only, so time moves for each alone. Visits that began
    before `since` (epoch s) are not in `tallies`. With `settings` every place is followed, else
    those of companies that ask for presence or have a campaign that needs it.
    """

    settings: VisitSettings | None
    catalog: ReplayedCatalog
    since: float
    max_age: float
    path_loss_exponent: float
    tallies: defaultdict[VisitKind, VisitTally] = field(
        default_factory=lambda: defaultdict(VisitTally)
    )
    _books: dict[object, VisitBook] = field(default_factory=dict)
    _visits_at: dict[IndexedPlace, Sequence[VisitPlace]] = field(default_factory=dict)
    # The last exits.
    _left: dict[tuple[VisitorKey, VisitKind, int], float] = field(default_factory=dict)

    def follow(
        self, detection: DecodedDetection, placed: Collection[DecodedDetection] | Decision
    ) -> list[PendingEvent]:
        """Note a detection, which is `placed` so, or nowhere. Returns the events."""
        record, udid, known = detection.record, detection.message.device.udid, self.catalog
        whole = (record.topic, record.partition) if record.timestamp >= 0 else udid
        book, found = self._books.get(whole), list[PendingEvent]()
        where: list[tuple[DecodedDetection, IndexedPlace | None, int]] = []
        if not isinstance(placed, Decision):
            places = ((each, known.places.get(each.key)) for each in placed)
            where = [(each, at, at.company_reference.id) for each, at in places if at is not None]
        elif placed.reason in (Reason.OUTSIDE, Reason.INACCURATE):
            where = [(detection, None, placed.company_id)]
        for each, place, company in where:
            visited = () if place is None else self._visited(place)
            if book is None and visited:
                margin = MARGIN if self.settings is None else self.settings.margin
                book = self._books[whole] = VisitBook(margin=margin)
            if book is None or (place is not None and not visited):
                continue
            seen = observation(each, place, arrival(each), self.max_age, self.path_loss_exponent)
            if seen is not None:
                grid = known.company_data.get(geofences_field(company))
                events = follow_detection(book, each, seen, (company, udid), visited, grid)
                self._count(events)
                found += moments_of(events, each)
        return found

    def finish(self) -> list[PendingEvent]:
        """Nothing more comes: every visit ends at its last detection."""
        events = [event for book in self._books.values() for event in book.expire(inf)]
        self._count(events)
        return list(moments_of(events, None))

    def _visited(self, place: IndexedPlace) -> Sequence[VisitPlace]:
        if self.settings is None:
            return place.visited
        visited = self._visits_at.get(place)
        if visited is None:
            silence = self.settings.exit or place.place.venue.visit_silence
            venue = replace(place.place.venue, visit_silence=silence)
            rules = replace(place.target.rules, tracks_visits=True)
            visited = visited_at(replace(place.place, venue=venue), place.campaigns, rules)
            self._visits_at[place] = visited
        return visited

    def _count(self, events: Iterable[VisitEvent]) -> None:
        for event in events:
            visit = event.visit
            tally, place = self.tallies[visit.kind], (event.visitor, visit.kind, visit.place_id)
            counts = visit.entered_at >= self.since
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


def arrival(detection: DecodedDetection) -> float:
    """When its record came; for one without a time (of a file), its own time."""
    stamp = detection.record.timestamp
    return stamp / 1000 if stamp >= 0 else detection.detected_at


def local_hour(campaign: CampaignSnapshot, instant: float) -> str:
    """The beginning of the hour that contains an instant (epoch s), in the campaign's local time,
    as the interface writes it: an hour that a clock change repeats is two, with other offsets."""
    written = schedule_of(campaign).clock.written(instant)
    return f"{written[:13]}:00:00{written[19:]}"


class Grant(NamedTuple):
    """A campaign that a detection, or a moment of a visit, fires."""

    detection: DecidedDetection
    place: IndexedPlace
    campaign: CampaignSnapshot


@dataclass
class CatalogReplay:
    """Decides detections in the given order.

    Detections and moments before `visits.since` are decided but not counted, so that their claims
    are known.
    The age of a detection is the delay of its record, because the trigger would have decided it on
    arrival. A detection from a file has no record, and is never stale or in the future. `reached`
    has the notifications of each campaign by device.
    """

    catalog: ReplayedCatalog
    visits: VisitReplay
    reached: defaultdict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    # Not bounded, because a forgotten claim would be granted again.
    _claims: defaultdict[str, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    # What caps count.
    _sent: defaultdict[DeviceKey, list[float]] = field(default_factory=lambda: defaultdict(list))
    # By place, decision, and whether it was at a moment of a visit. Many detections share these.
    _decisions: Counter[tuple[IndexedPlace | None, Decision, bool]] = field(default_factory=Counter)
    _hours: Counter[tuple[int, str]] = field(default_factory=Counter)  # notifications

    @property
    def sent(self) -> int:
        """The number of all notifications."""
        return sum(each.total() for each in self.reached.values())

    @property
    def devices(self) -> int:
        """How many devices they went to."""
        return len(set().union(*self.reached.values()))

    def decide(self, detections: Iterable[DecodedDetection]) -> list[Grant]:
        """Decide detections and take the claims of the grants. Returns the grants that count."""
        granting: list[Grant] = []
        for detection in detections:
            placed, now = self._placed(detection), arrival(detection)
            events, found = self.visits.follow(detection, placed), list[DecidedDetection]()
            granting += self._fire_silent(events, now)
            if isinstance(placed, Decision):
                self._decisions[None, placed, False] += detection.detected_at >= self.visits.since
            elif not is_exit(detection):
                found = [at_place(each, self.catalog.places.get(each.key)) for each in placed]
            granting += self._fire([*found, *self._moments(events, silent=False)], now)
        return self._note(granting)

    def finish(self) -> list[Grant]:
        """Nothing more comes: visits end. Returns the grants of that."""
        return self._note(self._fire_silent(self.visits.finish(), 0.0))

    def _note(self, granting: list[Grant]) -> list[Grant]:
        granting = [each for each in granting if each.detection.detected_at >= self.visits.since]
        for detection, _, campaign in granting:
            self.reached[campaign.id][detection.device.udid] += 1
            self._hours[campaign.id, local_hour(campaign, detection.detected_at)] += 1
        return granting

    def _placed(self, detection: DecodedDetection) -> Collection[DecodedDetection] | Decision:
        """The detection at each of its places, as the trigger finds them."""
        message, data = detection.message, self.catalog.company_data
        if message.tag is None and message.position is None:
            return (detection,)
        owner = data.get(application_field(message.api_key or ""))
        return places_of(detection, owner, owner and data.get(geofences_field(owner.company_id)))

    def _moments(self, events: Iterable[PendingEvent], *, silent: bool) -> list[DecidedDetection]:
        """What events of visits may fire: those of silence, or the others."""
        places = self.catalog.places
        return [
            at_moment(each, places.get(key_of_visit(each.event.visit)), "", 0)
            for each in events
            if each.event.is_silent is silent and each.event.visit.kind != "venue"
        ]

    def _fire_silent(self, events: Iterable[PendingEvent], now: float) -> list[Grant]:
        """Decide what the ends of silent visits fire, which were found at `now`."""
        fired = (self._fire([each], now) for each in self._moments(events, silent=True))
        return list(chain.from_iterable(fired))

    def _fire(self, found: Sequence[DecidedDetection], now: float) -> list[Grant]:
        """Decide a detection at its places, where it fires a campaign once, and by its visits."""
        fired = set[int]()
        grants = list[Grant]()
        for each in found:
            each.decision = self._decided(each, now, fired)
            if each.beacon is not None:
                grants += [Grant(each, each.beacon, one) for one in each.decision.granted]
            if each.event is None:
                fired.update(one.id for one in each.decision.granted)
        grants.sort(key=lambda grant: grant.campaign.precedence)
        fates = [(grant, self._claim(grant)) for grant in grants]
        for each in found:
            own = [(grant.campaign, fate) for grant, fate in fates if grant.detection is each]
            granted, capped = (
                tuple(campaign for campaign, fate in own if fate is reason)
                for reason in (Reason.GRANTED, Reason.CAPPED)
            )
            if len(granted) < len(own):
                phase = each.target.phase_at(each.detected_at, self._time_zone(each))
                each.decision = phase.granting(granted, capped)
            is_counted = each.detected_at >= self.visits.since
            self._decisions[each.beacon, each.decision, each.event is not None] += is_counted
        return [grant for grant, fate in fates if fate is Reason.GRANTED]

    def _decided(
        self,
        detection: DecidedDetection,
        now: float,
        fired: Collection[int],
    ) -> Decision:
        """The decision before caps; `fired` has what the same position fires already."""
        if detection.beacon is None:
            return unknown(detection.key)
        at, target, zone = detection.detected_at, detection.target, self._time_zone(detection)
        max_age = inf if detection.is_exit else self.visits.max_age
        held = self._claims.get(detection.device.udid, _NO_CLAIMS)
        decision = decide(target, detection.zone, at, now, max_age, held, zone)
        granted = tuple(each for each in decision.granted if each.id not in fired)
        if len(granted) < len(decision.granted):
            decision = target.phase_at(at, zone).granting(granted)
        return decision

    def _time_zone(self, detection: DecidedDetection) -> str | None:
        device, company = detection.device, detection.target.venue.company_id
        known = self.catalog.time_zones
        return device.time_zone or known.get(DeviceKey(company, device.udid))

    def _claim(self, grant: Grant) -> Reason:
        """Take the claim and the place in the company's caps. Returns why not, or GRANTED."""
        detection, place, campaign = grant
        at, udid, rules = detection.detected_at, detection.device.udid, place.target.rules
        newest = self._claims.get(udid, _NO_CLAIMS).get(campaign.id, -inf)
        if campaign.delay > 0 and at < newest + campaign.delay:
            return Reason.THROTTLED  # by another visit of the same detection
        if rules.caps and not campaign.ignores_caps:
            sent = self._sent[DeviceKey(rules.company_id, udid)]
            if refusing_cap(sent, at, rules.caps) is not None:
                return Reason.CAPPED
            insort(sent, at)
        if campaign.delay > 0:
            self._claims[udid][campaign.id] = max(at, newest)
        return Reason.GRANTED

    def rows(self, replays: Collection["CatalogReplay"]) -> Iterator[dict[str, Any]]:
        """The results, once all is decided, as objects of --json: reasons, campaigns, visits and
        hours. If there is another of `replays`, the campaigns have what they send here and not
        there: to a device more often, or to a device that they do not reach there."""
        other = next((each for each in replays if each is not self), None)
        catalog, named = {"catalog": self.catalog.name}, self.catalog.campaigns
        detections = Counter[Reason]()
        reasons: defaultdict[int, Counter[str]] = defaultdict(Counter)
        for (place, decision, in_visit), count in (+self._decisions).items():
            own = dict(decision.by_campaign)
            ids = own.keys() if in_visit or place is None else [c.id for c in place.campaigns]
            for id_ in ids:
                reasons[id_][own.get(id_, decision.reason).value] += count
            detections[decision.reason] += 0 if in_visit else count
        for reason, count in (+detections).most_common():
            yield {"kind": "reason", **catalog, "reason": reason.value, "detections": count}
        theirs: dict[object, Counter[str]] = {}
        if other is not None:
            known = other.catalog.campaigns.items()
            theirs = {each.key: other.reached[id_] for id_, each in known}
        # Also campaigns without any detection.
        for id_, each in sorted(
            named.items(), key=lambda item: (-self.reached[item[0]].total(), item[1][:3])
        ):
            mine, their = self.reached[id_], theirs.get(each.key, Counter())
            by_reason = dict(reasons[id_].most_common())
            others = [each for each in by_reason if each not in (Reason.GRANTED, Reason.THROTTLED)]
            yield {
                "kind": "campaign",
                **catalog,
                **each._asdict(),
                "sent": mine.total(),
                "devices": len(mine),
                "reasons": by_reason,
                "else_mostly": next(iter(others), None),
                "throttled": by_reason.get(Reason.THROTTLED, 0),
                "only_here": None if other is None else (mine - their).total(),
                "devices_only_here": None if other is None else len(mine.keys() - their.keys()),
            }
        for kind, tally in self.visits.tallies.items() if self.visits.settings else ():
            yield {
                "kind": "visits",
                **catalog,
                "place": kind,
                "visits": tally.visits,
                "flaps": tally.flaps,
                "seconds": round(tally.seconds),
                "mean_minutes": round(tally.seconds / max(1, tally.lengths.total()) / 60, 1),
                "lengths": {str(minutes): tally.lengths[minutes] for minutes in LENGTHS},
            }
        hours = ((named[id_], hour, sent) for (id_, hour), sent in self._hours.items())
        for each, hour, sent in sorted(hours):
            yield {"kind": "hour", **catalog, **each._asdict(), "hour": hour, "sent": sent}
