"""Passes decisions to watchers as they happen (`proximity tail`, the console).

The trigger reads the list of watchers from Redis once a second; without a watcher there is no other
cost. A few times a second, each watcher gets a bounded number of the decisions that match its
filter, and the number of those left out. The pipeline does not wait for it.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from redis.exceptions import RedisError

from api.reports import LiveDecision, LiveOutcome
from engine.kafka.detections import BeaconKey, DecodedDetection, GeofenceKey
from engine.process.metrics import Metrics
from engine.redis.tail_store import TailFilter, TailStore
from engine.trigger.grants import SHARED, DecidedDetection
from engine.trigger.place_index import Places
from rules.model import Decision

_COMPANY = attrgetter("company_id")
_POLL_SECONDS = 1.0
_WRITE_SECONDS = 0.2
_MOST_A_WRITE = 20  # decisions of a process for a watcher
_MOST_IN_ALL = 160


class Watcher:
    """One who watches, and what is gathered for the next write."""

    def __init__(self, wanted: TailFilter) -> None:
        self.wanted = wanted
        self.gathered: list[LiveDecision] = []
        self.left_out = 0
        self.most = _MOST_A_WRITE
        # Whether it wants whatever happens, of its company if it names one.
        self._is_plain = wanted.campaign is None and wanted.udid is None and wanted.reason is None

    @property
    def looks(self) -> bool:
        """Whether it needs to see decisions; else they are only counted for it."""
        return len(self.gathered) < self.most or not self._is_plain

    def offer(self, decided: DecidedDetection, now: float) -> None:
        """Take the decision if it fits and there is room."""
        if not (self._is_plain or _fits(decided, self.wanted)):
            return
        if len(self.gathered) < self.most:
            self.gathered.append(_live(decided, now, self.left_out))
            self.left_out = 0
        else:
            self.left_out += 1


class DecisionTail:
    """Passes decisions to watchers while `run` runs. `clock` in epoch seconds."""

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
        self._watchers: dict[TailFilter, Watcher] = {}
        self._everywhere: list[Watcher] = []
        self._by_company: dict[int, list[Watcher]] = {}

    def wants(self, _count: int, /) -> bool:
        """Whether anybody looks at decisions; else they are only counted."""
        return any(watcher.looks for watcher in self._watchers.values())

    def note_undecoded(self, decisions: Sequence[Decision]) -> None:
        """Count the decisions as left out."""
        if self._watchers:
            for company, count in Counter(map(_COMPANY, decisions)).items():
                for watcher in self._group_of(company):
                    watcher.left_out += count

    def note_refused(
        self,
        detections: Sequence[DecodedDetection],
        decisions: Sequence[Decision],
        beacons: Places,
    ) -> None:
        """Offer detections that fire nothing, each with its decision, to the watchers."""
        if not self._watchers:
            return
        now = self._clock()
        for detection, decision in zip(detections, decisions, strict=True):
            if group := self._group_of(decision.company_id):
                decided = DecidedDetection(detection, beacons.get(detection.key), decision)
                for watcher in group:
                    watcher.offer(decided, now)

    def note_claims(self, decided: Sequence[DecidedDetection]) -> None:
        """Offer detections whose claims Redis has decided."""
        if not self._watchers:
            return
        now = self._clock()
        for each in decided:
            for watcher in self._group_of(each.decision.company_id):
                watcher.offer(each, now)

    async def run(self) -> None:
        """Read the list of watchers, and write to them, until cancelled."""
        clock = asyncio.get_running_loop().time
        next_poll = clock()
        while True:
            try:
                if clock() >= next_poll:
                    next_poll = clock() + _POLL_SECONDS
                    self._serve(await self._store.watchers())
                await self._write()
            except (RedisError, OSError, TimeoutError):
                # Calls that the pipeline waits for log the outage.
                self._errors.inc()
                self._serve([])
            await asyncio.sleep(_WRITE_SECONDS if self._watchers else _POLL_SECONDS)

    def _group_of(self, company: int) -> list[Watcher]:
        """Those who watch what is decided for this company; 0 is that of unknown places."""
        return self._by_company.get(company, self._everywhere)

    def _serve(self, found: Sequence[TailFilter]) -> None:
        watchers = {each: self._watchers.get(each) or Watcher(each) for each in found}
        self._watchers, self._by_company = watchers, {}
        self._everywhere = [each for each in watchers.values() if each.wanted.company is None]
        for watcher in watchers.values():
            company = watcher.wanted.company
            if company is not None:
                self._by_company.setdefault(company, [*self._everywhere]).append(watcher)

    async def _write(self) -> None:
        """Write what is gathered. The next bound of each leaves room for all who are busy."""
        busy = [each for each in self._watchers.values() if each.gathered]
        most = max(1, min(_MOST_A_WRITE, _MOST_IN_ALL // max(1, len(busy))))
        for watcher in self._watchers.values():
            watcher.most = most
        if busy:
            to_write = {each.wanted.name: each.gathered for each in busy}
            for watcher in busy:
                watcher.gathered = []
            await self._store.write(to_write)


def _fits(decided: DecidedDetection, wanted: TailFilter) -> bool:
    if wanted.udid is not None and wanted.udid != decided.detection.message.device.udid:
        return False
    if wanted.campaign is None and wanted.reason is None:
        return True
    outcomes = list(_outcomes(decided))
    if wanted.campaign is not None:
        outcomes = [e for e in outcomes if wanted.campaign in (str(e.id), e.name.casefold())]
        if not outcomes:
            return False
    reasons = {each.outcome for each in outcomes} or {decided.decision.reason.value}
    return wanted.reason is None or wanted.reason in reasons


def _outcomes(decided: DecidedDetection) -> Iterator[LiveOutcome]:
    """Each campaign of the place; of a detection that was refused each has that reason."""
    if decided.beacon is None:
        return
    listed = decided.outcomes()
    by_number = {number: reason for reason, numbers in listed.items() for number in numbers}
    for campaign in decided.beacon.campaigns:
        outcome = by_number.get(campaign.id, decided.decision.reason.value)
        yield LiveOutcome(campaign.id, campaign.name, outcome)


def _live(decided: DecidedDetection, now: float, left_out: int) -> LiveDecision:
    detection, beacon = decided.detection, decided.beacon
    return LiveDecision(
        detection.detected_at,
        now,
        decided.decision.company_id or None,
        "" if beacon is None else beacon.venue_reference.name,
        _unknown_place(detection) if beacon is None else beacon.reference.name,
        detection.zone,
        decided.decision.reason.value,
        [] if decided.decision.reason in SHARED else list(_outcomes(decided)),
        left_out,
        _kind(detection),
    )


def _kind(detection: DecodedDetection) -> str:
    """The kind of the place; of a position in no geofence "position"."""
    if detection.key is not None:
        return detection.key.kind
    tag = detection.message.tag
    return "position" if tag is None else tag.kind


def _unknown_place(detection: DecodedDetection) -> str:
    """What the detection says of a place that has no name. (A tag's value may be a secret.)"""
    key = detection.key
    if isinstance(key, BeaconKey):
        return f"{key.uuid}:{key.major}:{key.minor}"
    return f"geofence {key.id}" if isinstance(key, GeofenceKey) else _kind(detection)
