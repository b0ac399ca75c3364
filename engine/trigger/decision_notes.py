"""Notes the decisions about each device, but for repeats, and writes them beside the pipeline.

Most detections are repeats: a device stands at a beacon, and its campaigns are throttled. A repeat
costs one look-up in a dictionary. New decisions are gathered, and a task of their own writes them
to Redis, one call at a time. No batch waits for it; decisions that cannot be written are dropped.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

from redis.exceptions import RedisError

from engine.kafka.detections import BeaconKey, DecodedDetection
from engine.process.metrics import Metrics
from engine.redis.decision_store import DecisionStore, DeviceDecision
from engine.redis.devices import DeviceKey
from engine.trigger.beacon_cache import IndexedBeacon
from engine.trigger.decision_record import SHARED, DecidedDetection, decided_by_claims
from engine.trigger.grants import Grant
from rules.model import Reason
from rules.outcome import CampaignOutcomes, Counts, Decision

_MOST_A_SECOND = 250  # noted by a process: a flood of new devices costs no more
_MOST_GATHERED = 2000
# Under load batches are large and follow each other closely. Then a part of them is looked at: a
# device that stays is in one of the next.
_LARGE = 200
_BETWEEN_LARGE_SECONDS = 0.05
_MOST_DEVICES = 50_000  # remembered in each of two generations
_GENERATION_SECONDS = 1800.0  # so that what goes on for hours is noted now and then
_MOST_OUTCOMES = 32  # remembered of a device
_GATHER_SECONDS = 0.1

# What is known of a device: the outcomes at its beacons since it was last sent something.
_Seen = set[tuple[int, Reason, Counts, int]]


class DecisionNotes:
    """Notes decisions and, while `run` runs, writes them to `store`. `clock` in epoch seconds."""

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
        # Of each device what its last decision was: all that a device that stays costs. (Not the
        # decision, which would keep the campaigns of a beacon as they were for half an hour.)
        self._last: dict[str, CampaignOutcomes] = {}
        self._young: dict[str, _Seen] = {}
        self._old: dict[str, _Seen] = {}
        self._young_since = float("-inf")
        self._looked_at = float("-inf")
        self._second = 0
        self._left = _MOST_A_SECOND
        self._to_write: list[DeviceDecision] = []
        self._arrived = asyncio.Event()

    def note_refused(
        self,
        detections: Sequence[DecodedDetection],
        decisions: Sequence[Decision],
        beacons: Mapping[BeaconKey, IndexedBeacon | None],
    ) -> None:
        """Detections that fire nothing, each with its decision."""
        now = self._begin()
        if len(detections) > _LARGE:
            if 0 <= now - self._looked_at < _BETWEEN_LARGE_SECONDS:
                return
            self._looked_at = now
        last_of = self._last.get
        for detection, decision in zip(detections, decisions, strict=True):
            if last_of(detection.message.device.udid) is not decision.by_campaign and self._left:
                self._note(DecidedDetection(detection, beacons[detection.key], decision), now)

    def note_claims(self, claimed: Sequence[Grant], denied: Sequence[Grant]) -> None:
        """Grants that hold their claim or need none, and those that were denied one."""
        now = self._begin()
        if not self._left:
            return
        for decided in decided_by_claims(claimed, denied):
            if self._left:
                self._note(decided, now)

    async def run(self) -> None:
        """Write what is noted until cancelled, and then the rest."""
        try:
            while True:
                await self._arrived.wait()
                await asyncio.sleep(_GATHER_SECONDS)
                await self._write()
        finally:
            await self._write()

    def _begin(self) -> float:
        """Now; each second has its budget, and each generation its end."""
        now = self._clock()
        if int(now) != self._second:
            # (Nothing more while Redis leaves what is gathered waiting.)
            room = _MOST_GATHERED - len(self._to_write)
            self._second, self._left = int(now), max(0, min(_MOST_A_SECOND, room))
        full = len(self._young) > _MOST_DEVICES
        if full or not 0 <= now - self._young_since < _GENERATION_SECONDS:
            self._old, self._young, self._young_since = self._young, {}, now
            self._last.clear()
        return now

    def _note(self, decided: DecidedDetection, now: float) -> None:
        """Gather a decision unless it repeats one. A beacon that no company has leads to no
        company's device."""
        udid, beacon = decided.detection.message.device.udid, decided.beacon
        if beacon is None:
            return
        seen, decision = self._seen(udid), decided.decision
        self._last.pop(udid, None)
        if decided.held:
            seen.clear()  # what follows is news again
        else:
            if decided.reason not in SHARED:
                self._last[udid] = decision.by_campaign
            throttled = decision.throttled + decided.denied
            outcome = (beacon.reference.id, decided.reason, decision.closed, throttled)
            if outcome in seen:
                return
            if len(seen) >= _MOST_OUTCOMES:
                seen.clear()
            seen.add(outcome)
        self._left -= 1
        device = DeviceKey(beacon.company_reference.id, udid)
        self._to_write.append(DeviceDecision(device, decided.record(beacon, now)))
        self._arrived.set()

    def _seen(self, udid: str) -> _Seen:
        """It stays in its generation, and is forgotten with it."""
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
            # Dropped: no detection waits for what is noted of it. The outage is said by others.
            self._errors.inc()
