"""The visits of one partition: from detections to events, and these to messages of `presence`.

The changes of a batch of records are written to Redis before its events go on, so a crash repeats
events as they were and loses none (engine/redis/visits.py). Without visits it costs nothing.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from aiokafka import ConsumerRecord, TopicPartition
from msgspec.structs import replace

from engine.kafka.detections import (
    BeaconKey,
    DecodedDetection,
    GeofenceKey,
    PlaceKey,
    TagKey,
    decode_record,
)
from engine.kafka.messages import (
    CompanyReference,
    KnownDevice,
    PresenceEvent,
    ReceivedDevice,
    VenueReference,
    VisitedPlace,
    format_instant,
)
from engine.kafka.offsets import Position
from engine.kafka.producer import Outgoing, Publisher
from engine.kafka.workers import Records
from engine.process.metrics import Metrics
from engine.redis.devices import DeviceKey, DeviceLookup, completed_device
from engine.redis.visits import PendingEvent, VisitStore
from engine.trigger.claim_memory import RememberedClaims
from engine.trigger.decision_counts import DecisionCounter
from engine.trigger.grants import DecidedDetection, decide_from_memory, remembered_time_zone
from engine.trigger.locate import Located, is_exit
from engine.trigger.place_cache import IndexedPlace
from engine.trigger.place_index import PlaceIndex, Places
from rules.geofences import GeofenceGrid, distance
from rules.model import Reason, Zone
from rules.visits import (
    Observation,
    Visit,
    VisitBook,
    VisitEvent,
    VisitorKey,
    VisitPlace,
    weakest_signal,
)

if TYPE_CHECKING:
    from engine.trigger.record_filter import Sighting

_MOST_AT_ONCE = 500  # events of a tick, and messages of a list
_SAVE_SECONDS = 0.25  # between two writes that lead to no event

# An event, its place (None once that was deleted), and what it fires.
_Decided: TypeAlias = tuple[PendingEvent, IndexedPlace | None, DecidedDetection | None]

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, kw_only=True)
class VisitTracking:
    """What the partitions of a process need for visits. `clock` gives epoch seconds.

    `open_store` makes the store of a partition, with the id of its topic. With `in_transactions`
    the publisher's messages and the offset are committed together.
    """

    open_store: Callable[[TopicPartition, str | None], VisitStore]
    index: PlaceIndex
    devices: DeviceLookup
    publisher: Publisher
    topic: str
    counter: DecisionCounter
    metrics: Metrics
    path_loss_exponent: float
    max_age: float
    clock: Callable[[], float] = time.time
    in_transactions: bool = False


class PartitionVisits:
    """Belongs to one assignment; one task at a time calls `load`, `follow` and `tick`."""

    def __init__(
        self,
        tracking: VisitTracking,
        partition: TopicPartition,
        begin: Position,
        remembered: RememberedClaims,
    ) -> None:
        self._tracking = tracking
        self._partition = partition
        self._begin = begin.offset
        self._remembered = remembered
        self._book = VisitBook()
        self._store = tracking.open_store(partition, begin.topic_id)
        self._offset = 0  # records before it have been counted
        # The first offset whose changes are not written; it must not be passed by a commit.
        self.unsaved_from: int | None = None
        # When it is written (loop time), unless many records or an event come before.
        self.save_at = 0.0
        self.messages: list[_Decided] = []  # what `publish` has to do
        self._parts: dict[bytes, int] = {}  # what each written event waits for, by its id
        self._published: list[bytes] = []  # to be forgotten with the next write
        self._shown = 0  # in the gauge
        # Time goes on from `_seen` at the pace of the clock, which said `_moved_at` then.
        self._seen, self._moved_at, self._newest = self._book.mark, 0.0, 0.0
        self._clock_says: float | None = None

    @property
    def pending(self) -> int:
        """Unacknowledged events, plus one for a due tick and one for unsaved changes."""
        due = (self._clock_says is not None) + (self.unsaved_from is not None)
        return len(self._parts) + due

    @property
    def is_due(self) -> bool:
        """Whether `tick` has something to do."""
        return self._clock_says is not None

    def note_lag(self, lag: int, asked_at: float) -> None:
        """So many records were left at `asked_at` (epoch s).

        At the end of the partition time moves with the clock, before it with the newest record.
        """
        if self._book or self._published:
            self._clock_says = self._newest if lag else asked_at

    async def load(self) -> list[DecidedDetection]:
        """Go on where the last owner stopped. Returns what its events may fire."""
        self._offset, events = await self._store.load(self._book)
        if self._tracking.in_transactions:  # those of committed records are published
            committed = [each for each in events if 0 <= each.offset < self._begin]
            self._published += [each.event.id.bytes for each in committed]
            events = [each for each in events if not 0 <= each.offset < self._begin]
        self._seen, self._moved_at = self._book.mark, self._tracking.clock()
        return self._to_publish(await self._decide(events))

    async def follow(
        self, records: Records, located: Located, places: Places, undecoded: "list[Sighting]"
    ) -> list[DecidedDetection]:
        """Note where devices are, by records in order. Returns what their visits may fire.

        `undecoded` has the sightings of detections that were refused without being decoded.
        Raises VisitsTakenOverError.
        """
        self._newest = max(self._newest, records[-1].timestamp / 1000)
        sightings = self._in_order(located, places, undecoded)
        if not (self._book or sightings):
            return []
        book, mark, found = self._book, self._book.mark, list[PendingEvent]()
        for seen, visitor, visited, source in sightings:
            if isinstance(source, DecodedDetection):
                grid = located.grids.get(visitor[0])
                events = follow_detection(book, source, seen, visitor, visited, grid)
            elif events := book.observe(visitor, visited, seen):
                source = decode_record(source, self._tracking.path_loss_exponent)
            if events:
                found += moments_of(events, source)
        if book.mark > mark:
            self._seen, self._moved_at = book.mark, self._tracking.clock()
        for kind, count in book.late.items():
            self._tracking.metrics.visits.labels(kind, "late").inc(count)
        book.late.clear()
        self._offset = max(self._offset, records[-1].offset + 1)
        if book.changed and self.unsaved_from is None:
            self.unsaved_from = records[0].offset
        return await self._write(found) if found else []

    async def tick(self) -> list[DecidedDetection]:
        """Time has moved on without a detection: end what is silent. Raises as `follow`."""
        clock_says = self._clock_says or 0.0
        until = self._seen + max(0.0, clock_says - self._moved_at)
        events = self._book.expire(until, _MOST_AT_ONCE)
        firing = await self._write(list(moments_of(events, None)))
        if len(events) < _MOST_AT_ONCE and self._clock_says == clock_says:
            self._clock_says = None
        return firing

    async def publish(self) -> None:
        """Publish messages of presence until there are none."""
        tracking = self._tracking
        while self.messages:
            batch = self.messages[:_MOST_AT_ONCE]
            del self.messages[:_MOST_AT_ONCE]
            keys = [DeviceKey(*pending.event.visitor) for pending, _, _ in batch]
            known = await tracking.devices.find(set(keys))
            messages = [
                _message(tracking.topic, pending.event, place, device)
                for key, (pending, place, _) in zip(keys, batch, strict=True)
                for device in [completed_device(pending.device, known.get(key))]
            ]
            await tracking.publisher.publish(messages)
            for pending, _, _ in batch:
                self.finish(pending.event)

    def finish(self, event: VisitEvent) -> None:
        """A part of the event is acknowledged: its message of presence, or its campaigns."""
        number = event.id.bytes
        self._parts[number] -= 1
        if not self._parts[number]:
            del self._parts[number]
            self._published.append(number)

    async def save(self) -> None:
        """Write all changes, and forget acknowledged events, which the next owner then does not
        publish again. Raises as `follow`."""
        await self._write([])

    def close(self) -> None:
        """The assignment has ended."""
        self._tracking.metrics.visits_open.dec(self._shown)
        self._shown = 0

    def _in_order(
        self, located: Located, places: Places, undecoded: "list[Sighting]"
    ) -> "list[Sighting]":
        """All that tells where devices are and was not counted yet, by record."""
        tracking, found = self._tracking, undecoded  # most batches have no others
        placed = [
            (each, place, place.company_reference.id)
            for each in (*located.detections, *located.left)
            if (place := places.get(each.key)) is not None and place.target.rules.tracks_visits
        ]
        nowhere = [
            (each, None, decision.company_id)
            for each, decision in zip(located.nowhere, located.refusals, strict=True)
            if decision.reason in (Reason.OUTSIDE, Reason.INACCURATE)
        ]
        for detection, place, company in (*placed, *nowhere):
            written = detection.record.timestamp / 1000
            arrived = written if written > 0 else tracking.clock()
            seen = observation(
                detection, place, arrived, tracking.max_age, tracking.path_loss_exponent
            )
            if seen is not None:
                visited = () if place is None else place.visited
                found.append((seen, (company, detection.message.device.udid), visited, detection))
        if placed or nowhere:
            found.sort(key=lambda each: (each[0].record.offset, each[0].index))
        if found and found[0][0].record.offset < self._offset:  # the owner before counted them
            found = [each for each in found if each[0].record.offset >= self._offset]
        return found

    async def _write(self, found: list[PendingEvent]) -> list[DecidedDetection]:
        """Write what has changed, with the events."""
        if not (found or self._book.changed or self._published):
            return []
        decided = await self._decide(found)
        published = list[bytes]()
        # Not within a transaction: if it is aborted, its events are published again.
        if not self._tracking.publisher.is_open:
            published, self._published = self._published, []
        await self._store.save(self._book, self._offset, found, published)
        pause = 0.0 if self._tracking.in_transactions else _SAVE_SECONDS
        self.unsaved_from, self.save_at = None, asyncio.get_running_loop().time() + pause
        metrics = self._tracking.metrics
        for each in found:
            metrics.visits.labels(each.event.visit.kind, each.event.type).inc()
        metrics.visits_open.inc(self._book.open - self._shown)
        self._shown = self._book.open
        return self._to_publish(decided)

    async def _decide(self, events: list[PendingEvent]) -> list[_Decided]:
        """What each event fires, by the catalog as it is now."""
        tracking, now, decided = self._tracking, self._tracking.clock(), list[_Decided]()
        places = await tracking.index.resolve(
            {key_of_visit(each.event.visit) for each in events}, 0
        )
        for each in events:
            event, key = each.event, key_of_visit(each.event.visit)
            place = places.get(key)
            if event.cause == "silence" and (place is None or not place.visited):
                each.event = event = replace(event, cause="edited")
            fires = None
            if place is not None and event.visit.kind != "venue":
                fires, rules = at_moment(each, place, *self._partition), place.target.rules
                fires.time_zone = remembered_time_zone(fires.device, rules, tracking.devices)
                fires.decision = decide_from_memory(fires, self._remembered, now, tracking.max_age)
                fires.version = tracking.index.cache.version
                if not fires.decision.granted:
                    tracking.counter.count_moments([fires])
                    fires = None
            decided.append((each, place, fires))
        return decided

    def _to_publish(self, decided: list[_Decided]) -> list[DecidedDetection]:
        self.messages += decided
        for pending, _, fires in decided:
            self._parts[pending.event.id.bytes] = 1 + (fires is not None)
        return [fires for _, _, fires in decided if fires is not None]


def observation(
    detection: DecodedDetection,
    place: IndexedPlace | None,
    arrived: float,
    max_age: float,
    path_loss_exponent: float,
) -> Observation | None:
    """The detection as visits see it (as the filter does, where that is compiled).

    None for one from the future, which counts for none.
    """
    record, at, message = detection.record, detection.detected_at, detection.message
    if at > arrived + max_age:
        return None
    reach = None if place is None else place.target.reach
    seen = Observation(at, min(at, arrived), record, detection.index)
    if reach is None:
        return seen
    seen.in_reach = Zone.UNKNOWN < detection.zone <= reach
    if message.rssi is not None and message.rssi < 0:
        seen.rssi = message.rssi
        seen.weakest = weakest_signal(reach, message.tx_power, path_loss_exponent)
    return seen


def follow_detection(
    book: VisitBook,
    detection: DecodedDetection,
    seen: Observation,
    visitor: VisitorKey,
    visited: Sequence[VisitPlace],
    grid: GeofenceGrid | None,
) -> list[VisitEvent]:
    """Note a detection at the places `visited`; `grid` has the geofences of its company."""
    events: list[VisitEvent] = []
    position = detection.message.position
    if position is not None and grid is not None:
        for visit in book.of(visitor):
            circle = grid.circles.get(visit.place_id) if visit.kind == "geofence" else None
            if circle is not None:
                metres = distance(position.latitude, position.longitude, circle)
                if metres > circle.radius + (position.accuracy or 0.0):
                    events += book.leave(visitor, visit.where, seen, "signal")
    if visited and is_exit(detection):
        events += book.leave(visitor, visited[0].where, seen, "reported")
    elif visited:
        events += book.observe(visitor, visited, seen)
    return events


def moments_of(
    events: Iterable[VisitEvent], detection: DecodedDetection | None
) -> Iterator[PendingEvent]:
    """Adds the device and zone to each event: those of `detection`, which led to the events. An
    exit by silence has no detection, and names the udid alone."""
    offset = -1 if detection is None else detection.record.offset
    for event in events:
        device, zone = ReceivedDevice(udid=event.visitor[1]), Zone.UNKNOWN
        if detection is not None and event.cause != "silence":
            device, zone = detection.message.device, detection.zone
        yield PendingEvent(event, device, zone, offset)


def at_moment(
    moment: PendingEvent, place: IndexedPlace | None, topic: str, partition: int
) -> DecidedDetection:
    """What the rules decide at an event: a detection of the visit's place, at its time."""
    event, udid = moment.event, moment.device.udid.encode()
    record: ConsumerRecord[bytes, bytes] = ConsumerRecord(
        *(topic, partition, moment.offset, round(event.at * 1000)),
        *(0, udid, None, None, len(udid), 0, ()),
    )  # stands for the one of the event, which may be long gone
    key = key_of_visit(event.visit)
    return DecidedDetection(record, moment.device, key, moment.zone, event.at, place, event=event)


def key_of_visit(visit: Visit) -> PlaceKey:
    """The key of the place at which the visit was last seen."""
    _, *key = visit.key
    if len(key) == 1:
        return GeofenceKey(*key)
    return BeaconKey(*key) if isinstance(key[0], str) else TagKey(*key)


def _message(
    topic: str, event: VisitEvent, place: IndexedPlace | None, device: KnownDevice
) -> Outgoing:
    visit, is_exit = event.visit, event.type == "exit"
    venue = "" if place is None else place.venue_reference.name
    name = venue if place is None or visit.kind == "venue" else place.reference.name
    number = str(event.id)
    body = PresenceEvent(
        id=number,
        visit_id=str(visit.uuid),
        type=event.type,
        place=VisitedPlace(visit.kind, visit.place_id, name),
        venue=VenueReference(visit.key[0], venue),
        company=CompanyReference(event.visitor[0]),
        device=device,
        entered_at=format_instant(visit.entered_at),
        last_seen=format_instant(visit.last_seen),
        exited_at=format_instant(visit.last_seen) if is_exit else None,
        duration_seconds=int(visit.last_seen - visit.entered_at) if is_exit else None,
        detections=visit.detections,
        rssi_max=visit.rssi_max,
        cause=event.cause,
    )
    return Outgoing(topic, device.udid.encode(), _encode(body), [("id", number.encode())])
