"""Visits: when a device enters a place, how long it stays, and when it has left.

A place is a beacon, a geofence or a venue. Time is that of the detections: it moves with the
greatest one of a partition (`mark`), or as far as `expire` says. Times are epoch seconds.
"""

import uuid
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Mapping
from copy import copy
from functools import lru_cache
from heapq import heappop, heappush
from math import inf, log10
from typing import Any, Literal, Protocol

import msgspec

from rules.model import Zone
from rules.parsing import DEFAULT_TX_POWER, IMMEDIATE_BELOW, NEAR_UP_TO

VisitKind = Literal["beacon", "geofence", "venue"]
VisitEventType = Literal["enter", "dwell", "exit"]
ExitCause = Literal["silence", "signal", "reported", "edited"]
VisitorKey = tuple[int, str]  # company id and udid
Where = tuple[VisitKind, int]  # what is visited, and its id

# Seconds without a detection after which a visit has ended, where nothing else is set.
SILENCE: Mapping[VisitKind, int] = {"beacon": 30, "geofence": 120, "venue": 120}
MARGIN = 6.0  # dB beyond a beacon's reach, where its visits end
LENGTHS = (0, 1, 5, 15, 30, 60, 120, 240)  # minutes at which the classes of lengths begin
_SMOOTHING = 0.3
_MINUTE = 60
_NAMESPACE = uuid.UUID("0d9a5a34-4a0e-5a53-8f2e-7a1a3f6f0c11")


class Record(Protocol):
    """The record of a detection."""

    topic: str
    partition: int
    offset: int


class VisitPlace(msgspec.Struct, frozen=True):
    """A place that is visited. `key` is kept with the visit, so that the place can be found.

    A visit ends after `silence` seconds. `dwell_minutes` ascend.
    """

    where: Where
    key: tuple[Any, ...]
    silence: float
    dwell_minutes: tuple[int, ...] = ()


class Observation(msgspec.Struct, gc=False):
    """A detection as visits see it.

    Time moves to `until`: its own time, but no further than when its record arrived, because a
    device's clock may be ahead. `record` and `index` in it identify the detection, and so the visit
    that it begins. `rssi` is in dBm, and `weakest` is the weakest within reach; None: any is.
    """

    at: float
    until: float
    record: Record
    index: int = 0
    in_reach: bool = True
    rssi: float | None = None
    weakest: float | None = None


class Visit(msgspec.Struct, array_like=True, gc=False):
    """One visit of a device at a place. Only a visit that has ended has `ended_at`: the time of
    what ended it. It is kept for as long as late detections may come."""

    kind: VisitKind
    place_id: int
    key: tuple[Any, ...]
    id: bytes
    silence: float
    entered_at: float
    last_seen: float
    detections: int = 1
    rssi_mean: float | None = None
    rssi_max: float | None = None
    ended_at: float | None = None

    @property
    def where(self) -> Where:
        """What is visited."""
        return self.kind, self.place_id

    @property
    def uuid(self) -> uuid.UUID:
        """Its id."""
        return uuid.UUID(bytes=self.id)

    @property
    def deadline(self) -> float:
        """The last moment at which it goes on without another detection."""
        return (self.last_seen if self.ended_at is None else self.ended_at) + self.silence


class VisitEvent(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A device entered, dwelt for `minutes`, or left; `visit` as it was at that moment."""

    type: VisitEventType
    visitor: VisitorKey
    visit: Visit
    minutes: int = 0
    cause: ExitCause | None = None

    @property
    def id(self) -> uuid.UUID:
        """The same for the same event, however often it is found."""
        return uuid.uuid5(self.visit.uuid, f"{self.type} {self.minutes}")

    @property
    def is_silent(self) -> bool:
        """Whether it was found because time has moved on, and not by a detection of the place."""
        return self.cause in ("silence", "edited")

    @property
    def at(self) -> float:
        """The entry, the detection that reached the minutes, or the last detection."""
        return self.visit.entered_at if self.type == "enter" else self.visit.last_seen


@lru_cache(maxsize=4096)
def weakest_signal(reach: Zone, tx_power: float | None, exponent: float) -> float | None:
    """The weakest signal within a beacon's reach, in dBm; None if the beacon reaches far.

    `tx_power` in dBm at one metre, `exponent` is that of the path loss.
    """
    if reach is Zone.FAR:
        return None
    metres = NEAR_UP_TO if reach is Zone.NEAR else IMMEDIATE_BELOW
    power = DEFAULT_TX_POWER if tx_power is None else tx_power
    return power - 10 * exponent * log10(metres)


def length_class(seconds: float) -> int:
    """The greatest of LENGTHS that a visit of so many seconds reached."""
    return LENGTHS[bisect(LENGTHS, seconds / _MINUTE) - 1]


class VisitBook:
    """The visits of all devices of one partition.

    A visit ends when the mean of its signals is more than `margin` (dB) beyond the reach. The mean
    is kept for the time of silence, and within it the next visit begins when the mean, too, is
    within reach: else a single strong signal far away would begin one.

    `changed` has the visits of the devices whose visits differ from when it was cleared. `late`
    counts detections that are older than the end of a visit. `open` is the number of visits that
    have not ended.
    """

    def __init__(self, mark: float = -inf, margin: float = MARGIN) -> None:
        self.mark = mark
        self._margin = margin
        self.changed: dict[VisitorKey, dict[Where, Visit]] = {}
        self.late: Counter[VisitKind] = Counter()
        self.open = 0
        self._visits: dict[VisitorKey, dict[Where, Visit]] = {}
        # Of each visit one entry that is not later than its deadline: a visit that goes on does not
        # move its entry, which is put back when its time has come.
        self._deadlines: list[tuple[float, VisitorKey, Where, bytes]] = []

    def __len__(self) -> int:
        """How many devices it has."""
        return len(self._visits)

    def of(self, visitor: VisitorKey) -> list[Visit]:
        """The visits of a device, also those that have just ended."""
        return list(self._visits.get(visitor, {}).values())

    def restore(self, visitor: VisitorKey, visits: Iterable[Visit]) -> None:
        """Put back what `of` had."""
        for visit in visits:
            self._keep(visitor, visit)

    def observe(  # noqa: C901  a call costs as much as what it does
        self, visitor: VisitorKey, places: Iterable[VisitPlace], seen: Observation
    ) -> list[VisitEvent]:
        """A detection at the first of `places`; what it begins or holds there, it does at the next.

        The events come in the order of time: first those of silence. Nearly all detections hold
        visits and lead to no event: hence few calls.
        """
        at, until, rssi, in_reach = seen.at, seen.until, seen.rssi, seen.in_reach
        events: list[VisitEvent] = []  # list[VisitEvent]() takes ten times as long
        if until > self.mark:
            if self._deadlines and self._deadlines[0][0] < until:
                events = self.expire(until)
            else:
                self.mark = until
        visits = self._visits.get(visitor)
        for place in places:
            visit = visits.get(place.where) if visits else None
            beyond = None
            if visit is not None and rssi is not None:
                beyond = _note_signal(visit, at, rssi, seen.weakest)
            if visit is None or visit.ended_at is not None:
                may_begin = in_reach and not (beyond is not None and beyond > 0)
                enter = self._begin(visitor, place, seen, rssi, visit) if may_begin else None
                if enter is None:
                    break
                events.append(enter)
                visits = self._visits[visitor]
            elif in_reach or (beyond is not None and beyond <= self._margin):
                before = visit.last_seen
                visit.detections += 1
                visit.key = place.key
                if at > before:
                    visit.last_seen = at
                if rssi is not None and (visit.rssi_max is None or rssi > visit.rssi_max):
                    visit.rssi_max = rssi
                if visit.silence != place.silence:
                    visit.silence = place.silence
                    self._watch(visitor, visit)
                for minutes in place.dwell_minutes:
                    reached = visit.entered_at + minutes * _MINUTE
                    if before < reached <= visit.last_seen:
                        events.append(VisitEvent("dwell", visitor, copy(visit), minutes))
            else:
                if beyond is not None:
                    events.append(self._end(visitor, visit, max(at, visit.last_seen), "signal"))
                break
            rssi, in_reach = None, True  # of the next place it is no signal
        if visits:
            self.changed[visitor] = visits
        return events

    def leave(
        self, visitor: VisitorKey, where: Where, seen: Observation, cause: ExitCause
    ) -> list[VisitEvent]:
        """End a visit, because the device or its position says so."""
        events = self.expire(seen.until)
        visit = self._visits.get(visitor, {}).get(where)
        if visit is not None and visit.ended_at is None:
            if seen.at < visit.last_seen:
                self.late[visit.kind] += 1
            else:
                events.append(self._end(visitor, visit, seen.at, cause))
        return events

    def expire(self, until: float, most: int | None = None) -> list[VisitEvent]:
        """Time has moved to `until`: end the visits that were silent for too long.

        After `most` events it stops, and time has moved to the last of them.
        """
        events: list[VisitEvent] = []
        while self._deadlines and self._deadlines[0][0] < until:
            if len(events) == most:
                until = self._deadlines[0][0]
                break
            deadline, visitor, where, visit_id = heappop(self._deadlines)
            visits = self._visits.get(visitor, {})
            visit = visits.get(where)
            if visit is None or visit.id != visit_id:
                continue
            if visit.deadline > deadline:  # it goes on, or others end before it
                self._watch(visitor, visit)
                continue
            if visit.ended_at is None:
                events.append(self._end(visitor, visit, visit.last_seen, "silence"))
            del visits[where]
            if not visits:
                del self._visits[visitor]
            self.changed[visitor] = visits
        self.mark = max(self.mark, until)
        return events

    def _begin(
        self,
        visitor: VisitorKey,
        place: VisitPlace,
        seen: Observation,
        rssi: float | None,
        ended: Visit | None,
    ) -> VisitEvent | None:
        """Begin a visit, unless it is too late; `ended` is the one before, while it is known."""
        at, end = seen.at, None if ended is None else ended.ended_at
        if (end is not None and at <= end) or at + place.silence < self.mark:
            self.late[place.where[0]] += 1
            return None
        record = seen.record
        name = record.topic, record.partition, record.offset, seen.index
        identity = (*visitor, *place.where, *name, round(at * 1000))
        visit_id = uuid.uuid5(_NAMESPACE, "\0".join(map(str, identity))).bytes
        visit = Visit(
            *(*place.where, place.key, visit_id, place.silence, at, at),
            rssi_mean=rssi,
            rssi_max=rssi,
        )
        self._keep(visitor, visit)
        return VisitEvent("enter", visitor, copy(visit))

    def _end(self, visitor: VisitorKey, visit: Visit, at: float, cause: ExitCause) -> VisitEvent:
        event = VisitEvent("exit", visitor, copy(visit), cause=cause)
        visit.ended_at = at
        self.open -= 1
        self.changed[visitor] = self._visits[visitor]
        return event

    def _keep(self, visitor: VisitorKey, visit: Visit) -> None:
        self._visits.setdefault(visitor, {})[visit.where] = visit
        self.open += visit.ended_at is None
        self._watch(visitor, visit)

    def _watch(self, visitor: VisitorKey, visit: Visit) -> None:
        heappush(self._deadlines, (visit.deadline, visitor, visit.where, visit.id))


def _note_signal(visit: Visit, at: float, rssi: float, weakest: float | None) -> float | None:
    """Add a signal to the mean, unless it is late.

    Returns by how many dB the mean is weaker than any signal within reach; None if nobody knows.
    """
    if at >= (visit.last_seen if visit.ended_at is None else visit.ended_at):
        mean = rssi if visit.rssi_mean is None else visit.rssi_mean
        visit.rssi_mean = mean + _SMOOTHING * (rssi - mean)
    return None if weakest is None or visit.rssi_mean is None else weakest - visit.rssi_mean
