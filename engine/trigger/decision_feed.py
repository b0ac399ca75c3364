"""Shows decisions to people: to those who watch, and the last ones of each device.

DecisionNotes collects the decisions about each device, without repeats, and writes them to Redis.

Most detections are repeats: a device stays at a place, and its campaigns are throttled. A repeat
costs one look-up in a dictionary. A background task writes new decisions to Redis, one call at a
time. The pipeline does not wait for it; decisions that cannot be written are dropped.
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
from engine.trigger.grants import SHARED, DecidedDetection
from engine.trigger.place_cache import IndexedPlace
from engine.trigger.place_index import Places
from rules.model import CampaignOutcomes, Counts, Decision, PlaceKind, Reason, StoredDecision

_MOST_A_SECOND = 250  # collected by a process, which bounds the cost of a flood of new devices
_MOST_GATHERED = 2000
# Under load only some of the detections that fire nothing are sampled: a device that stays at its
# beacon is in a later sample too.
_MOST_SAMPLED = 200
_SAMPLE_SECONDS = 0.05
_MOST_DEVICES = 50_000  # remembered in each of two generations
_GENERATION_SECONDS = 1800.0  # afterwards a repeat is collected again
_MOST_OUTCOMES = 32  # remembered of a device
_GATHER_SECONDS = 0.1

# The outcomes of a device at its places since the last campaign that was sent to it.
_SeenOutcomes = set[tuple[PlaceKind, int, Reason, Counts, int]]


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
        # The outcomes of each device's last decision, to recognise a repeat. (Not the decision
        # itself, which would keep old versions of campaigns in memory for half an hour.)
        self._last: dict[str, CampaignOutcomes] = {}
        self._young: dict[str, _SeenOutcomes] = {}
        self._old: dict[str, _SeenOutcomes] = {}
        self._young_since = float("-inf")
        self._sampled_at = float("-inf")
        self._sampled = 0
        self._second = 0
        self._budget = _MOST_A_SECOND
        self._to_write: list[DeviceDecision] = []
        self._arrived = asyncio.Event()

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
        now = self._begin()
        if not 0 <= now - self._sampled_at < _SAMPLE_SECONDS:
            self._sampled_at, self._sampled = now, 0
        self._sampled += len(detections)
        last_of = self._last.get
        for detection, decision in zip(detections, decisions, strict=True):
            if last_of(detection.message.device.udid) is not decision.by_campaign and self._budget:
                self._note(DecidedDetection(detection, beacons.get(detection.key), decision), now)

    def note_claims(self, decided: Sequence[DecidedDetection]) -> None:
        """Collect detections whose claims Redis has decided."""
        now = self._begin()
        for each in decided:
            if not self._budget:
                return
            self._note(each, now)

    async def run(self) -> None:
        """Write collected decisions until cancelled, and then the rest."""
        try:
            while True:
                await self._arrived.wait()
                await asyncio.sleep(_GATHER_SECONDS)
                await self._write()
        finally:
            await self._write()

    def _begin(self) -> float:
        """The present time. Renews the budget of the second, and begins a new generation if due."""
        now = self._clock()
        if int(now) != self._second:
            # (No budget while many collected decisions still wait for Redis.)
            room = _MOST_GATHERED - len(self._to_write)
            self._second, self._budget = int(now), max(0, min(_MOST_A_SECOND, room))
        full = len(self._young) > _MOST_DEVICES
        if full or not 0 <= now - self._young_since < _GENERATION_SECONDS:
            self._old, self._young, self._young_since = self._young, {}, now
            self._last.clear()
        return now

    def _note(self, decided: DecidedDetection, now: float) -> None:
        """Collect a decision unless it is a repeat. (An unknown place has no company.)"""
        udid, beacon = decided.detection.message.device.udid, decided.beacon
        if beacon is None:
            return
        seen, decision = self._seen(udid), decided.decision
        self._last.pop(udid, None)
        if decided.grants:
            seen.clear()  # later outcomes are no repeats
        else:
            if decided.reason not in SHARED:
                self._last[udid] = decision.by_campaign
            throttled = decision.throttled + decided.denied
            outcome = (
                beacon.place.kind,
                beacon.reference.id,
                decided.reason,
                decision.closed,
                throttled,
            )
            if outcome in seen:
                return
            if len(seen) >= _MOST_OUTCOMES:
                seen.clear()
            seen.add(outcome)
        self._budget -= 1
        device = DeviceKey(beacon.company_reference.id, udid)
        self._to_write.append(DeviceDecision(device, _stored(decided, beacon, now)))
        self._arrived.set()

    def _seen(self, udid: str) -> _SeenOutcomes:
        """The outcomes of a device, which are forgotten with their generation."""
        seen = self._young.get(udid)
        if seen is None:
            seen = self._old.get(udid)
        if seen is None:
            seen = self._young[udid] = set()
        return seen

    async def _write(self) -> None:
        self._arrived.clear()
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
        decided.reason.value,
        decided.outcomes(),
        beacon.place.kind,
    )
