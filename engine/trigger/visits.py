"""The visits of one partition: from detections to events, and these to messages of `presence`.

The changes of a batch of records are written to Redis before its events go on, so a crash repeats
events as they were and loses none (engine/redis/visits.py). Without visits it costs nothing.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import structlog
from aiokafka import ConsumerRecord, TopicPartition
from msgspec.structs import replace

from catalog.redis_connection import RedisClient
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
    Detection,
    KnownDevice,
    PresenceEvent,
    ReceivedDevice,
    VenueReference,
    VisitedPlace,
    format_instant,
)
from engine.kafka.offsets import Position
from engine.kafka.producer import MessageTooLargeError, Outgoing, Publisher
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
from rules.geofences import Circle, distance
from rules.model import GeofenceSnapshot, Reason, Zone
from rules.visits import Observation, Visit, VisitBook, VisitEvent, VisitorKey, weakest_signal

if TYPE_CHECKING:
    from engine.trigger.refusal_filter import Seen

log = structlog.get_logger(__name__)

_MOST_AT_ONCE = 500  # events of a tick, and messages of a list
_SAVE_SECONDS = 0.25  # between two writes that lead to no event

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, kw_only=True)
class VisitTracking:
    """What the partitions of a process need for visits. `clock` gives epoch seconds.

    With `in_transactions` the publisher's messages and the offset are committed together.
    """

    redis: RedisClient
    prefix: str
    deadline: float
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


class _Publication(NamedTuple):
    """An event to publish; `place` is None once it was deleted."""

    pending: PendingEvent
    place: IndexedPlace | None


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
        self._store = VisitStore(
            redis=tracking.redis,
            prefix=tracking.prefix,
            deadline=tracking.deadline,
            metrics=tracking.metrics,
            partition=partition,
            topic_id=begin.topic_id,
        )
        self._offset = 0  # records before it have been counted
        # The first offset whose changes are not written; it must not be passed by a commit.
        self.unsaved_from: int | None = None
        self._saved_at = 0.0
        self._messages: deque[_Publication] = deque()
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
    def save_at(self) -> float:
        """When it is written (loop time), unless many records or an event come before."""
        return self._saved_at + (0.0 if self._tracking.in_transactions else _SAVE_SECONDS)

    @property
    def has_messages(self) -> bool:
        """Whether `publish` has something to do."""
        return bool(self._messages)

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
        if self._tracking.in_transactions:
            events = [each for each in events if not 0 <= each.offset < self._begin]
        self._seen, self._moved_at = self._book.mark, self._tracking.clock()
        return self._to_publish(await self._decide(events))

    async def follow(
        self,
        records: Records,
        located: Located,
        places: Places,
        keys: Collection[PlaceKey],
        seen: "list[Seen]",
    ) -> list[DecidedDetection]:
        """Note where devices are, by records in order. Returns what their visits may fire.

        `seen` are the detections that were refused without being decoded, in order.
        Raises VisitsTakenOverError.
        """
        self._newest = max(self._newest, records[-1].timestamp / 1000)
        if not (self._book or seen) and not any(
            place is not None and place.visited for place in map(places.get, keys)
        ):
            return []
        found, mark = list[PendingEvent](), self._book.mark
        circles = await self._circles(located, places)
        undecoded = deque(each for each in seen if each[0].offset >= self._offset)
        last_position: tuple[int, int] | None = None
        for detection, company in _in_order(located, places):
            offset = detection.record.offset
            found += self._apply_seen(undecoded, offset)
            if offset < self._offset:
                continue
            if detection.message.position is not None and last_position != (
                last_position := (offset, detection.index)
            ):
                found += self._leave_geofences(detection, company, circles)
            found += self._apply(detection, company, places.get(detection.key))
        found += self._apply_seen(undecoded, inf)
        if self._book.mark > mark:
            self._seen, self._moved_at = self._book.mark, self._tracking.clock()
        for kind, count in self._book.late.items():
            self._tracking.metrics.visits.labels(kind, "late").inc(count)
        self._book.late.clear()
        self._offset = max(self._offset, records[-1].offset + 1)
        if self._book.changed and self.unsaved_from is None:
            self.unsaved_from = records[0].offset
        return await self._write(found) if found else []

    async def tick(self) -> list[DecidedDetection]:
        """Time has moved on without a detection: end what is silent. Raises as `follow`."""
        clock_says = self._clock_says or 0.0
        until = self._seen + max(0.0, clock_says - self._moved_at)
        events = self._book.expire(until, _MOST_AT_ONCE)
        firing = await self._write(list(_pending(events, None)))
        if len(events) < _MOST_AT_ONCE and self._clock_says == clock_says:
            self._clock_says = None
        return firing

    async def publish(self) -> None:
        """Publish messages of presence until there are none."""
        tracking = self._tracking
        while self._messages:
            batch = [
                self._messages.popleft() for _ in range(min(len(self._messages), _MOST_AT_ONCE))
            ]
            keys = [DeviceKey(*each.pending.event.visitor) for each in batch]
            known = await tracking.devices.find(set(keys))
            messages = [
                _message(
                    tracking.topic, each, completed_device(each.pending.device, known.get(key))
                )
                for key, each in zip(keys, batch, strict=True)
            ]
            try:
                await tracking.publisher.publish(messages)
            except MessageTooLargeError as error:  # below 10 KiB: the topic allows next to nothing
                log.error("presence refused", error=str(error))  # noqa: TRY400
            for each in batch:
                self.finish(each.pending.event)

    def finish(self, event: VisitEvent) -> None:
        """A part of the event is acknowledged: its message of presence, or its campaigns."""
        number = event.id.bytes
        self._parts[number] -= 1
        if not self._parts[number]:
            del self._parts[number]
            self._published.append(number)

    async def save(self) -> None:
        """Write all changes, and forget acknowledged events, so that the next owner does
        not publish it again. Raises as `follow`."""
        await self._write([])

    def close(self) -> None:
        """The assignment has ended."""
        self._tracking.metrics.visits_open.dec(self._shown)
        self._shown = 0

    def _apply(
        self, detection: DecodedDetection, company: int, place: IndexedPlace | None
    ) -> Iterator[PendingEvent]:
        """What the detection changes at its place."""
        seen = self._observation(detection, place)
        visitor = company, detection.message.device.udid
        events: list[VisitEvent] = []
        if seen is None or place is None:
            pass
        elif isinstance(place.place, GeofenceSnapshot) and is_exit(detection):
            events = self._book.leave(visitor, ("geofence", place.place.id), seen, "reported")
        elif place.visited:
            events = self._book.observe(visitor, place.visited, seen)
        return _pending(events, detection)

    def _apply_seen(self, undecoded: "deque[Seen]", until: float) -> Iterator[PendingEvent]:
        """The same, of detections before an offset that were not decoded; nearly all hold."""
        observe = self._book.observe
        while undecoded and undecoded[0][0].offset < until:
            record, place, udid, seen = undecoded.popleft()
            events = observe((place.company_reference.id, udid), place.visited, seen)
            if events:
                exponent = self._tracking.path_loss_exponent
                yield from _pending(events, decode_record(record, exponent))

    def _leave_geofences(
        self, detection: DecodedDetection, company: int, circles: Places
    ) -> Iterator[PendingEvent]:
        """End the visits of geofences that a position is beyond."""
        seen = self._observation(detection, None)
        if seen is not None:
            visitor = company, detection.message.device.udid
            events = leave_geofences(self._book, visitor, detection, seen, circles)
            yield from _pending(events, detection)

    def _observation(
        self, detection: DecodedDetection, place: IndexedPlace | None
    ) -> Observation | None:
        tracking, record = self._tracking, detection.record
        arrived = record.timestamp / 1000 if record.timestamp > 0 else tracking.clock()
        return observation(detection, place, arrived, tracking.max_age, tracking.path_loss_exponent)

    async def _circles(self, located: Located, places: Places) -> Places:
        """The geofences in which devices are whose positions came, and all others in memory."""
        if not located.nowhere and not located.shares_records:
            return {}
        visited = {
            _key_of(visit)
            for detection, company in _in_order(located, places)
            if detection.message.position is not None
            for visit in self._book.of((company, detection.message.device.udid))
            if visit.kind == "geofence"
        }
        return await self._tracking.index.resolve(visited, 0)

    async def _write(self, found: list[PendingEvent]) -> list[DecidedDetection]:
        """Write what has changed, with the events that somebody wants to know."""
        if not (found or self._book.changed or self._published):
            return []
        decided = await self._decide(found)
        wanted = [
            publication.pending
            for publication, fires in decided
            if publication.pending.event.visit.presence or fires
        ]
        published, self._published = self._published, []
        await self._store.save(self._book, self._offset, wanted, published)
        self.unsaved_from, self._saved_at = None, asyncio.get_running_loop().time()
        metrics = self._tracking.metrics
        for each in found:
            metrics.visits.labels(each.event.visit.kind, each.event.type).inc()
        metrics.visits_open.inc(self._book.open - self._shown)
        self._shown = self._book.open
        return self._to_publish(decided)

    async def _decide(
        self, events: list[PendingEvent]
    ) -> list[tuple[_Publication, DecidedDetection | None]]:
        """What each event fires, by the catalog as it is now."""
        if not events:
            return []
        tracking, now = self._tracking, self._tracking.clock()
        places = await tracking.index.resolve({_key_of(each.event.visit) for each in events}, 0)
        decided = []
        for each in events:
            event, key = each.event, _key_of(each.event.visit)
            place = places.get(key)
            if event.cause == "silence" and (place is None or not place.visited):
                each.event = event = replace(event, cause="edited")
            fires = None
            if place is not None and event.visit.kind != "venue":
                detection = DecodedDetection(
                    *(self._record_of(each), Detection(device=each.device), key, each.zone),
                    event.at,
                    event=event,
                )
                zone = remembered_time_zone(detection, place, tracking.devices)
                decision = decide_from_memory(
                    detection, place, self._remembered, now, tracking.max_age, (), zone
                )
                version = tracking.index.cache.version
                fires = DecidedDetection(detection, place, decision, version=version)
                fires.time_zone = zone
                if not decision.granted:
                    tracking.counter.count_moments([fires])
                    fires = None
            decided.append((_Publication(each, place), fires))
        return decided

    def _to_publish(
        self, decided: Iterable[tuple[_Publication, DecidedDetection | None]]
    ) -> list[DecidedDetection]:
        firing = []
        for publication, fires in decided:
            event = publication.pending.event
            if event.visit.presence:
                self._messages.append(publication)
            if fires is not None:
                firing.append(fires)
            parts = event.visit.presence + (fires is not None)
            if parts:
                self._parts[event.id.bytes] = parts
        return firing

    def _record_of(self, pending: PendingEvent) -> ConsumerRecord[bytes, bytes]:
        """Stands for the record of an event, which may be long gone."""
        key, at = pending.device.udid.encode(), round(pending.event.at * 1000)
        return ConsumerRecord(
            *(*self._partition, pending.offset, at, 0, key, None, None, len(key), 0, ())
        )


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
    name = (record.topic, record.partition, record.offset, detection.index)
    reach = None if place is None else place.target.reach
    if reach is None:
        return Observation(at, arrived, name)
    in_reach = Zone.UNKNOWN < detection.zone <= reach
    if message.rssi is None or message.rssi >= 0:
        return Observation(at, arrived, name, in_reach)
    weakest = weakest_signal(reach, message.tx_power, path_loss_exponent)
    return Observation(at, arrived, name, in_reach, message.rssi, weakest)


def leave_geofences(
    book: VisitBook,
    visitor: VisitorKey,
    detection: DecodedDetection,
    seen: Observation,
    circles: Mapping[PlaceKey | None, IndexedPlace | None],
) -> list[VisitEvent]:
    """End the visits of geofences that a position is beyond, whatever its error."""
    position, events = detection.message.position, list[VisitEvent]()
    for visit in book.of(visitor) if position is not None else ():
        known = circles.get(GeofenceKey(visit.place_id)) if visit.kind == "geofence" else None
        if position is None or known is None or visit.ended_at is not None:
            continue
        fence = known.place
        assert isinstance(fence, GeofenceSnapshot)  # noqa: S101  # by the key
        circle = Circle(fence.id, fence.latitude, fence.longitude, fence.radius)
        metres = distance(position.latitude, position.longitude, circle)
        if metres > fence.radius + (position.accuracy or 0.0):
            events += book.leave(visitor, ("geofence", fence.id), seen, "signal")
    return events


def _in_order(located: Located, places: Places) -> Iterator[tuple[DecodedDetection, int]]:
    """All that tells where devices are, in the order of the records, each with its company."""
    found = [
        (each, place.company_reference.id)
        for each in (*located.detections, *located.left)
        if (place := places.get(each.key)) is not None
    ]
    found += [
        (each, decision.company_id)
        for each, decision in zip(located.nowhere, located.refusals, strict=True)
        if decision.reason in (Reason.OUTSIDE, Reason.INACCURATE)
    ]
    if located.left or located.nowhere:
        found.sort(key=lambda each: (each[0].record.offset, each[0].index))
    return iter(found)


def _pending(
    events: Iterable[VisitEvent], detection: DecodedDetection | None
) -> Iterator[PendingEvent]:
    offset = -1 if detection is None else detection.record.offset
    for event in events:
        if detection is None or event.cause == "silence":
            device = ReceivedDevice(udid=event.visitor[1])
            yield PendingEvent(event, device, Zone.UNKNOWN, offset)
        else:
            yield PendingEvent(event, detection.message.device, detection.zone, offset)


def _key_of(visit: Visit) -> PlaceKey:
    """The key of the place at which the visit was last seen."""
    _, *key = visit.key
    if len(key) == 1:
        return GeofenceKey(*key)
    return BeaconKey(*key) if isinstance(key[0], str) else TagKey(*key)


def _message(topic: str, publication: _Publication, device: KnownDevice) -> Outgoing:
    event, place = publication.pending.event, publication.place
    visit, is_exit = event.visit, event.type == "exit"
    name = ""
    if place is not None:
        is_venue = visit.kind == "venue"
        name = place.venue_reference.name if is_venue else place.reference.name
    number = str(event.id)
    body = PresenceEvent(
        id=number,
        visit_id=str(visit.uuid),
        type=event.type,
        place=VisitedPlace(visit.kind, visit.place_id, name),
        venue=VenueReference(visit.key[0], "" if place is None else place.venue_reference.name),
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
