"""Shows decisions as they happen to those who watch (`proximity tail`).

Once a second the trigger asks Redis who watches; while nobody does, that is all it costs. A watcher
is written a bounded number of the decisions that fit its filter, a few times a second, with the
number of those left out. No batch waits for it.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

from redis.exceptions import RedisError

from engine.kafka.detections import BeaconKey, DecodedDetection
from engine.process.metrics import Metrics
from engine.redis.tail_store import (
    MOST_WATCHERS,
    CampaignOutcome,
    TailedDecision,
    TailFilter,
    TailStore,
)
from engine.trigger.beacon_cache import IndexedBeacon
from engine.trigger.decision_record import SHARED, DecidedDetection, decided_by_claims
from engine.trigger.grants import Grant
from rules.decision import Decision

_LOOK_SECONDS = 1.0
_WRITE_SECONDS = 0.2
_GONE_SECONDS = 5.0  # without a sign of life
_MOST_A_WRITE = 20  # decisions of a process for a watcher: a hundred a second
_MOST_SEEN = 1000  # watchers, killed ones among them


class DecisionTail:
    """Passes decisions on to those who watch, while `run` runs. `clock` in epoch seconds."""

    name = "decision tail"

    def __init__(
        self,
        *,
        store: TailStore,
        metrics: Metrics,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._errors = metrics.redis_errors
        self._clock = clock
        self._seen: dict[str, _Watcher] = {}
        self._watchers: dict[str, _Watcher] = {}  # those that are served

    def note_refused(
        self,
        detections: Sequence[DecodedDetection],
        decisions: Sequence[Decision],
        beacons: Mapping[BeaconKey, IndexedBeacon | None],
    ) -> None:
        """Detections that fire nothing, each with its decision."""
        if not self._watchers:
            return
        now = self._clock()
        for detection, decision in zip(detections, decisions, strict=True):
            self._pass_on(DecidedDetection(detection, beacons[detection.key], decision), now)

    def note_claims(self, claimed: Sequence[Grant], denied: Sequence[Grant]) -> None:
        """Grants that hold their claim or need none, and those that were denied one."""
        if not self._watchers:
            return
        now = self._clock()
        for decided in decided_by_claims(claimed, denied):
            self._pass_on(decided, now)

    async def run(self) -> None:
        """Ask who watches, and write to the watchers, until cancelled."""
        clock = asyncio.get_running_loop().time
        look_at = clock()
        while True:
            try:
                if clock() >= look_at:
                    look_at = clock() + _LOOK_SECONDS
                    gone = self._note_watchers(await self._store.watchers(), clock())
                    if gone:
                        await self._store.forget(gone)
                await self._write()
            except (RedisError, OSError, TimeoutError):
                # The outage is said by those whose work waits for Redis.
                self._errors.inc()
                self._watchers.clear()
            await asyncio.sleep(_WRITE_SECONDS if self._watchers else _LOOK_SECONDS)

    def _note_watchers(self, found: Mapping[str, TailFilter], now: float) -> list[str]:
        """Serve the first few that are alive. Returns those that have not moved for a while: they
        were killed, and their places are others'."""
        seen: dict[str, _Watcher] = {}
        for name, wanted in islice(found.items(), _MOST_SEEN):
            watcher = self._seen.get(name) or _Watcher(wanted, now)
            if watcher.wanted != wanted:
                watcher.wanted, watcher.beat_at = wanted, now
            seen[name] = watcher
        alive = [name for name, each in seen.items() if now - each.beat_at < _GONE_SECONDS]
        self._seen = seen
        self._watchers = {name: seen[name] for name in alive[:MOST_WATCHERS]}
        return [name for name in seen if name not in alive]

    def _pass_on(self, decided: DecidedDetection, now: float) -> None:
        for watcher in self._watchers.values():
            if _fits(decided, watcher.wanted):
                watcher.take(decided, now)

    async def _write(self) -> None:
        to_write = {}
        for name, watcher in self._watchers.items():
            if watcher.gathered:
                to_write[name], watcher.gathered = watcher.gathered, []
        if to_write:
            await self._store.write(to_write)


class _Watcher:
    """One who watches; `beat_at` is when its last sign of life was seen."""

    def __init__(self, wanted: TailFilter, beat_at: float) -> None:
        self.wanted = wanted
        self.beat_at = beat_at
        self.gathered: list[TailedDecision] = []
        self.left_out = 0

    def take(self, decided: DecidedDetection, now: float) -> None:
        if len(self.gathered) >= _MOST_A_WRITE:
            self.left_out += 1
            return
        self.gathered.append(_told(decided, now, self.left_out))
        self.left_out = 0


def _fits(decided: DecidedDetection, wanted: TailFilter) -> bool:
    if wanted.udid is not None and wanted.udid != decided.detection.message.device.udid:
        return False
    company = None if decided.beacon is None else decided.beacon.company_reference.id
    if wanted.company is not None and wanted.company != company:
        return False
    if wanted.campaign is None and wanted.reason is None:
        return True
    outcomes = list(_outcomes(decided))
    if wanted.campaign is not None:
        outcomes = [each for each in outcomes if wanted.campaign in _names(each)]
        if not outcomes:
            return False
    reasons = {reason for _, _, reason in outcomes} or {decided.reason.value}
    return wanted.reason is None or wanted.reason in reasons


def _outcomes(decided: DecidedDetection) -> Iterator[CampaignOutcome]:
    """Each campaign of the beacon; of a detection that was refused each has that reason."""
    if decided.beacon is None:
        return
    listed = decided.outcomes()
    by_number = {number: reason for reason, numbers in listed.items() for number in numbers}
    for campaign in decided.beacon.campaigns:
        outcome = by_number.get(campaign.id, decided.reason.value)
        yield CampaignOutcome(campaign.id, campaign.name, outcome)


def _told(decided: DecidedDetection, now: float, left_out: int) -> TailedDecision:
    detection, beacon = decided.detection, decided.beacon
    uuid, major, minor = detection.key
    return TailedDecision(
        detection.detected_at,
        now,
        None if beacon is None else beacon.company_reference.id,
        "" if beacon is None else beacon.venue_reference.name,
        f"{uuid}:{major}:{minor}" if beacon is None else beacon.reference.name,
        int(detection.zone),
        decided.reason.value,
        [] if decided.reason in SHARED else list(_outcomes(decided)),
        left_out,
    )


def _names(outcome: CampaignOutcome) -> tuple[str, str]:
    number, name, _ = outcome
    return str(number), name.casefold()
