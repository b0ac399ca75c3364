"""Shows decisions as they happen to whoever watches (`proximity tail`), and costs nothing else.

Once a second the trigger asks Redis who watches. While somebody does, a bounded number of the
decisions that fit is written to them a few times a second, and how many more there were. No batch
waits for it.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

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
from rules.model import Reason

_LOOK_SECONDS = 1.0
_WRITE_SECONDS = 0.2
_GONE_SECONDS = 5.0  # without a sign of life
_MOST_A_WRITE = 20  # decisions of a process for a watcher: a hundred a second


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
        self._watchers: dict[str, _Watcher] = {}

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
            beacon = beacons[detection.key]
            self._pass_on(_Happened(detection, beacon, decision), now)

    def note_claims(self, claimed: Sequence[Grant], denied: Sequence[Grant]) -> None:
        """Grants that hold their claim or need none, and those that were denied one."""
        if not self._watchers:
            return
        now = self._clock()
        for decided in decided_by_claims(claimed, denied):
            happened = _Happened(decided.detection, decided.beacon, decided.decision, decided)
            self._pass_on(happened, now)

    async def run(self) -> None:
        """Look who watches, and write to them, until cancelled."""
        clock = asyncio.get_running_loop().time
        look_at = clock()
        while True:
            try:
                if clock() >= look_at:
                    look_at = clock() + _LOOK_SECONDS
                    self._note_watchers(await self._store.watchers(), clock())
                await self._write()
            except (RedisError, OSError, TimeoutError):
                # The outage is said by those whose work waits for Redis.
                self._errors.inc()
                self._watchers.clear()
            await asyncio.sleep(_WRITE_SECONDS if self._watchers else _LOOK_SECONDS)

    def _note_watchers(self, found: Mapping[str, TailFilter], now: float) -> None:
        """The first few; those that have not moved for a while were killed."""
        watchers: dict[str, _Watcher] = {}
        for name, wanted in list(found.items())[:MOST_WATCHERS]:
            known = self._watchers.get(name)
            if known is None or known.wanted != wanted:
                known = _Watcher(wanted, now, known)
            watchers[name] = known
        self._watchers = watchers

    def _pass_on(self, happened: "_Happened", now: float) -> None:
        for watcher in self._watchers.values():
            if watcher.is_alive and happened.fits(watcher.wanted):
                watcher.take(happened, now)

    async def _write(self) -> None:
        now = asyncio.get_running_loop().time()
        to_write = {}
        for name, watcher in self._watchers.items():
            watcher.is_alive = now - watcher.beat_at < _GONE_SECONDS
            if watcher.gathered:
                to_write[name], watcher.gathered = watcher.gathered, []
        if to_write:
            await self._store.write(to_write)


class _Watcher:
    """One who watches; `beat_at` is when its last sign of life was seen."""

    def __init__(self, wanted: TailFilter, beat_at: float, before: "_Watcher | None") -> None:
        self.wanted = wanted
        self.beat_at = beat_at
        self.is_alive = True
        self.gathered: list[TailedDecision] = [] if before is None else before.gathered
        self.left_out: int = 0 if before is None else before.left_out

    def take(self, happened: "_Happened", now: float) -> None:
        if len(self.gathered) >= _MOST_A_WRITE:
            self.left_out += 1
            return
        self.gathered.append(happened.told(now, self.left_out))
        self.left_out = 0


class _Happened(NamedTuple):
    """A decision; `by_claims` where claims had the last word."""

    detection: DecodedDetection
    beacon: IndexedBeacon | None
    decision: Decision
    by_claims: DecidedDetection | None = None

    def fits(self, wanted: TailFilter) -> bool:
        udid = self.detection.message.device.udid
        if wanted.udid is not None and wanted.udid != udid:
            return False
        company = None if self.beacon is None else self.beacon.company_reference.id
        if wanted.company is not None and wanted.company != company:
            return False
        if wanted.campaign is None and wanted.reason is None:
            return True
        outcomes = list(self._outcomes())
        if wanted.campaign is not None:
            outcomes = [each for each in outcomes if wanted.campaign in _names(each)]
            if not outcomes:
                return False
        reasons = {reason for _, _, reason in outcomes} or {self.reason.value}
        return wanted.reason is None or wanted.reason in reasons

    @property
    def reason(self) -> Reason:
        return self.decision.reason if self.by_claims is None else self.by_claims.reason

    def _outcomes(self) -> Iterator[CampaignOutcome]:
        """Each campaign of the beacon; of a detection that was refused each has that reason."""
        if self.beacon is None:
            return
        decided = self.by_claims or DecidedDetection(self.detection, self.beacon, self.decision)
        campaigns = decided.record(0.0).campaigns
        by_number = {number: reason for reason, listed in campaigns.items() for number in listed}
        for campaign in self.beacon.campaigns:
            outcome = by_number.get(campaign.id, self.reason.value)
            yield CampaignOutcome(campaign.id, campaign.name, outcome)

    def told(self, now: float, left_out: int) -> TailedDecision:
        detection, beacon = self.detection, self.beacon
        uuid, major, minor = detection.key
        return TailedDecision(
            detection.detected_at,
            now,
            None if beacon is None else beacon.company_reference.id,
            "" if beacon is None else beacon.venue_reference.name,
            f"{uuid}:{major}:{minor}" if beacon is None else beacon.reference.name,
            int(detection.zone),
            self.reason.value,
            [] if self.reason in SHARED else list(self._outcomes()),
            left_out,
        )


def _names(outcome: CampaignOutcome) -> tuple[str, str]:
    number, name, _ = outcome
    return str(number), name.casefold()
