"""Shows decisions to people: to those who watch, and the last ones of each device.

DecisionNotes collects the decisions about each device, without repeats: most detections are such,
because a device stays at a place and its campaigns are throttled. A background task writes them to
Redis. The pipeline does not wait for it; decisions that cannot be written are dropped.
"""

import asyncio
import time
from collections.abc import Callable, Sequence

from redis.exceptions import RedisError

from engine.kafka.detections import DecodedDetection
from engine.process.metrics import Metrics
from engine.redis.decision_store import DecisionStore, DeviceDecision
from engine.redis.devices import DeviceKey
from engine.trigger.decision_tail import DecisionTail
from engine.trigger.grants import DecidedDetection
from engine.trigger.place_cache import IndexedPlace
from engine.trigger.place_index import Places
from rules.model import Counts, Decision, PlaceKind, Reason, StoredDecision

# Written by a process at once, which bounds the cost of a flood of new devices.
_MOST_A_WRITE = 250
_WRITE_SECONDS = 1.0
# Under load only some of the detections that fire nothing are sampled: a device that stays at its
# beacon is in a later sample too.
_MOST_SAMPLED = 200
_SAMPLE_SECONDS = 0.05
# The outcomes of so many devices, so many of each, are known as repeats for so long.
_MOST_DEVICES = 100_000
_MOST_OUTCOMES = 32
_REPEAT_SECONDS = 3600.0

# The outcomes of a device at its places since the last campaign that was sent to it.
_SeenOutcomes = set[tuple[PlaceKind, int, Reason, Counts]]


class DecisionFeed:
    """Shows decisions to the watchers of `tail`, and to `notes` unless it is None.

    Its methods neither wait nor raise, because the pipeline calls them.
    """

    def __init__(self, tail: DecisionTail, notes: "DecisionNotes | None" = None) -> None:
        self.tail = tail
        self.notes = notes

    def wants(self, count: int) -> bool:
        """Whether it needs to see all of so many detections now; else it may get only a part of
        them, and of the others the decisions."""
        return self.tail.wants(count) or (self.notes is not None and self.notes.wants(count))

    def note_undecoded(self, decisions: Sequence[Decision]) -> None:
        """Receive the decisions of detections that fire nothing and were not decoded."""
        self.tail.note_undecoded(decisions)

    def note_refused(
        self,
        detections: Sequence[DecodedDetection],
        decisions: Sequence[Decision],
        beacons: Places,
    ) -> None:
        """Receive detections that fire nothing, each with its decision."""
        self.tail.note_refused(detections, decisions, beacons)
        if self.notes is not None:
            self.notes.note_refused(detections, decisions, beacons)

    def note_claims(self, decided: Sequence[DecidedDetection]) -> None:
        """Receive detections whose claims Redis has decided."""
        self.tail.note_claims(decided)
        if self.notes is not None:
            self.notes.note_claims(decided)


class DecisionNotes:
    """Collects decisions; `run` writes them to `store`. `clock` in epoch seconds."""

    name = "decision notes"

    def __init__(
        self,
        *,
        store: DecisionStore,
        metrics: Metrics,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._errors = metrics.redis_errors
        self._clock = clock
        self._seen: dict[str, _SeenOutcomes] = {}
        self._seen_since = float("-inf")
        self._sampled_at = float("-inf")
        self._sampled = 0
        self._to_write: list[DeviceDecision] = []

    def wants(self, count: int, /) -> bool:
        """Whether a batch of so many is collected from now: it begins a sample, or fits into it."""
        is_new = not 0 <= self._clock() - self._sampled_at < _SAMPLE_SECONDS
        return is_new or self._sampled + count <= _MOST_SAMPLED

    def note_refused(
        self,
        detections: Sequence[DecodedDetection],
        decisions: Sequence[Decision],
        beacons: Places,
    ) -> None:
        """Collect the decisions of detections that fire nothing."""
        if not self.wants(len(detections)):
            return
        now = self._clock()
        if not 0 <= now - self._sampled_at < _SAMPLE_SECONDS:
            self._sampled_at, self._sampled = now, 0
        self._sampled += len(detections)
        for detection, decision in zip(detections, decisions, strict=True):
            if len(self._to_write) >= _MOST_A_WRITE:
                return
            self._note(DecidedDetection(detection, beacons.get(detection.key), decision), now)

    def note_claims(self, decided: Sequence[DecidedDetection]) -> None:
        """Collect detections whose claims Redis has decided."""
        now = self._clock()
        for each in decided:
            if len(self._to_write) >= _MOST_A_WRITE:
                return
            self._note(each, now)

    async def run(self) -> None:
        """Write collected decisions every second until cancelled, and then the rest."""
        try:
            while True:
                await asyncio.sleep(_WRITE_SECONDS)
                await self._write()
        finally:
            await self._write()

    def _note(self, decided: DecidedDetection, now: float) -> None:
        """Collect a decision unless it is a repeat. (An unknown place has no company.)"""
        udid, beacon = decided.detection.message.device.udid, decided.beacon
        if beacon is None:
            return
        if len(self._seen) >= _MOST_DEVICES or not 0 <= now - self._seen_since < _REPEAT_SECONDS:
            self._seen, self._seen_since = {}, now
        seen, decision = self._seen.setdefault(udid, set()), decided.decision
        outcome = beacon.place.kind, beacon.reference.id, decision.reason, decision.outcomes
        if decided.decision.granted or len(seen) >= _MOST_OUTCOMES:
            seen.clear()  # later outcomes are no repeats
        if outcome in seen:
            return
        if not decided.decision.granted:
            seen.add(outcome)
        device = DeviceKey(beacon.company_reference.id, udid)
        self._to_write.append(DeviceDecision(device, _stored(decided, beacon, now)))

    async def _write(self) -> None:
        gathered, self._to_write = self._to_write, []
        if not gathered:
            return
        try:
            await self._store.keep(gathered)
        except (RedisError, OSError, TimeoutError):
            # The decisions are dropped. Calls that the pipeline waits for log the outage.
            self._errors.inc()


def _stored(decided: DecidedDetection, beacon: IndexedPlace, now: float) -> StoredDecision:
    detection = decided.detection
    return StoredDecision(
        detection.detected_at,
        now,
        beacon.reference.id,
        detection.zone,
        decided.decision.reason.value,
        decided.outcomes(),
        beacon.place.kind,
    )
