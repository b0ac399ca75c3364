"""Visits in a replay: how many, how long, and how many come back at once, with any settings.

The state machine is the trigger's (rules/visits.py), and so is what it is told of a detection.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

from engine.kafka.detections import DecodedDetection, GeofenceKey, PlaceKey
from engine.trigger.place_cache import IndexedPlace
from rules.geofences import Circle, distance
from rules.model import BeaconSnapshot, Decision, GeofenceSnapshot, TagSnapshot, Zone
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
Places = Mapping[PlaceKey | None, IndexedPlace]


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
            least, most = _BOUNDS[written[1]] if written else (math.inf, 0.0)
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
        places: Places,
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
        is_live = record.timestamp >= 0  # NaN in a file
        arrived = record.timestamp / 1000 + self._shift if is_live else at
        if at > arrived + self._max_age:
            return
        udid = message.device.udid
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
            self._count(book.expire(math.inf))

    def _visited(self, place: IndexedPlace) -> list[VisitPlace]:
        """The place and its venue; a tag is a place of its venue's visits only."""
        venue, rules = place.place.venue, place.rules
        company = None if rules is None else rules.visit_silence
        silence = self._exit or venue.visit_silence or company
        found: list[tuple[VisitKind, int]] = [("venue", venue.id)]
        if not isinstance(place.place, TagSnapshot):
            is_beacon = isinstance(place.place, BeaconSnapshot)
            found.insert(0, ("beacon" if is_beacon else "geofence", place.place.id))
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
        if position is None:
            return
        for visit in list(book.of(visitor)):
            known = self._places.get(GeofenceKey(visit.place_id))
            if visit.kind != "geofence" or visit.ended_at is not None or known is None:
                continue
            fence = known.place
            assert isinstance(fence, GeofenceSnapshot)  # noqa: S101  # by the key
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
                left = self._left.get(place, -math.inf)
                tally.visits += counts
                tally.flaps += counts and visit.entered_at - left <= FLAP_SECONDS
            elif event.type == "exit":
                self._left[place] = visit.last_seen
                if counts:
                    seconds = visit.last_seen - visit.entered_at
                    tally.seconds += seconds
                    tally.lengths[length_class(seconds)] += 1
