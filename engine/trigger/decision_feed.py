"""Shows decisions to people: as they happen to those who watch (`proximity tail`, the console), and
the last ones of each device.

The trigger reads the list of watchers from Redis once a second. A few times a second, each watcher
gets a bounded number of the decisions that match its filter, and the number of those left out.
About each device new outcomes are collected, without repeats: most detections are such, because a
device stays at a place and its campaigns are throttled. The pipeline waits for none of it;
decisions that cannot be written are dropped.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from redis.exceptions import RedisError

from api.reports import LiveDecision, LiveOutcome
from engine.kafka.detections import BeaconKey, GeofenceKey, PlaceKey
from engine.process.metrics import Metrics
from engine.redis.decisions import DecisionStore, DeviceDecision, TailFilter, TailStore
from engine.redis.devices import DeviceKey
from engine.trigger.grants import SHARED, DecidedDetection
from engine.trigger.place_cache import IndexedPlace
from rules.model import Counts, Decision, PlaceKind, Reason, StoredDecision

_COMPANY = attrgetter("company_id")
_POLL_SECONDS = 1.0  # also between writes about devices
_WRITE_SECONDS = 0.2  # to watchers
_MOST_A_WRITE = 20  # decisions of a process for a watcher
_MOST_IN_ALL = 160
# Written about devices at once, which bounds the cost of a flood of new devices.
_MOST_NOTES = 250
# Under load only some of the detections that fire nothing are sampled, for each must be decoded: a
# device that stays at its beacon is in a later sample too.
_MOST_SAMPLED = 25
_SAMPLE_SECONDS = 0.05
# The outcomes of so many devices, so many of each, are known as repeats for so long.
_MOST_DEVICES = 100_000
_MOST_OUTCOMES = 32
_REPEAT_SECONDS = 3600.0


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


@dataclass(kw_only=True, eq=False)
class DecisionFeed:
    """Shows decisions while `run` runs; those of devices unless `store` is None.

    The other methods neither wait nor raise, because the pipeline calls them. `clock` in epoch
    seconds.
    """

    tail: TailStore
    store: DecisionStore | None
    metrics: Metrics
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self._errors = self.metrics.redis_errors
        self._watchers: dict[TailFilter, Watcher] = {}
        self._everywhere: list[Watcher] = []
        self._by_company: dict[int, list[Watcher]] = {}
        # The outcomes of each device at its places since the last campaign that was sent to it.
        self._seen: dict[str, set[tuple[PlaceKind, int, Reason, Counts]]] = {}
        self._seen_since = self._sampled_at = float("-inf")
        self._sampled = 0
        self._notes: list[DeviceDecision] = []

    def wants(self) -> int | None:
        """How many detections it needs to see now, None for all; of the others it gets the
        decisions."""
        return None if any(each.looks for each in self._watchers.values()) else self._room()

    def note_undecoded(self, decisions: Sequence[Decision]) -> None:
        """Count decisions of detections that fire nothing and were not decoded as left out."""
        if self._watchers:
            for company, count in Counter(map(_COMPANY, decisions)).items():
                for watcher in self._group_of(company):
                    watcher.left_out += count

    def note_refused(self, refused: Sequence[DecidedDetection]) -> None:
        """Receive detections that fire nothing."""
        now, room = self.clock(), self._room()
        self._sampled += min(room, len(refused))
        for each in refused if self._watchers else refused[:room]:
            self._note(each, now, room > 0)
            room -= 1

    def note_claims(self, decided: Sequence[DecidedDetection]) -> None:
        """Receive detections whose claims Redis has decided."""
        samples = self.store is not None
        if self._watchers or (samples and len(self._notes) < _MOST_NOTES):
            now = self.clock()
            for each in decided:
                self._note(each, now, samples)

    async def run(self) -> None:
        """Read the list of watchers, and write, until cancelled; then write the rest."""
        clock = asyncio.get_running_loop().time
        next_poll = clock()
        try:
            while True:
                if is_due := clock() >= next_poll:
                    next_poll = clock() + _POLL_SECONDS
                try:
                    if is_due:
                        self._serve(await self.tail.watchers())
                    await self._write_watched()
                except (RedisError, OSError, TimeoutError):
                    # Calls that the pipeline waits for log the outage.
                    self._errors.inc()
                    self._serve([])
                if is_due:
                    await self._write_notes()
                await asyncio.sleep(_WRITE_SECONDS if self._watchers else _POLL_SECONDS)
        finally:
            await self._write_notes()

    def _room(self) -> int:
        """Of how many detections that fire nothing devices' decisions are collected now."""
        now = self.clock()
        if not 0 <= now - self._sampled_at < _SAMPLE_SECONDS:
            self._sampled_at, self._sampled = now, 0
        return 0 if self.store is None else _MOST_SAMPLED - self._sampled

    def _note(self, decided: DecidedDetection, now: float, samples: bool) -> None:
        for watcher in self._group_of(decided.decision.company_id):
            watcher.offer(decided, now)
        if samples and len(self._notes) < _MOST_NOTES and decided.beacon is not None:
            self._note_device(decided, decided.beacon, now)

    def _note_device(self, decided: DecidedDetection, beacon: IndexedPlace, now: float) -> None:
        """Collect a decision unless it is a repeat."""
        udid, decision = decided.device.udid, decided.decision
        if len(self._seen) >= _MOST_DEVICES or not 0 <= now - self._seen_since < _REPEAT_SECONDS:
            self._seen, self._seen_since = {}, now
        seen = self._seen.setdefault(udid, set())
        outcome = beacon.place.kind, beacon.reference.id, decision.reason, decision.tally.outcomes
        if decision.granted or len(seen) >= _MOST_OUTCOMES:
            seen.clear()  # later outcomes are no repeats
        if outcome in seen:
            return
        if not decision.granted:
            seen.add(outcome)
        stored = StoredDecision(
            decided.detected_at,
            now,
            beacon.reference.id,
            decided.zone,
            decision.reason.value,
            decided.outcomes(),
            beacon.place.kind,
        )
        self._notes.append(DeviceDecision(DeviceKey(beacon.company_reference.id, udid), stored))

    async def _write_notes(self) -> None:
        notes, self._notes = self._notes, []
        if notes and self.store is not None:
            try:
                await self.store.keep(notes)
            except (RedisError, OSError, TimeoutError):
                self._errors.inc()  # the decisions are dropped

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

    async def _write_watched(self) -> None:
        """Write what is gathered. The next bound of each leaves room for all who are busy."""
        busy = [each for each in self._watchers.values() if each.gathered]
        most = max(1, min(_MOST_A_WRITE, _MOST_IN_ALL // max(1, len(busy))))
        for watcher in self._watchers.values():
            watcher.most = most
        if busy:
            to_write = {each.wanted.name: each.gathered for each in busy}
            for watcher in busy:
                watcher.gathered = []
            await self.tail.write(to_write)


def _fits(decided: DecidedDetection, wanted: TailFilter) -> bool:
    if wanted.udid is not None and wanted.udid != decided.device.udid:
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
    beacon = decided.beacon
    return LiveDecision(
        decided.detected_at,
        now,
        decided.decision.company_id or None,
        "" if beacon is None else beacon.venue_reference.name,
        _unknown_place(decided.key) if beacon is None else beacon.reference.name,
        decided.zone,
        decided.decision.reason.value,
        [] if decided.decision.reason in SHARED else list(_outcomes(decided)),
        left_out,
        _kind(decided.key),
    )


def _kind(key: PlaceKey | None) -> str:
    """The kind of the place; of a position in no geofence "position"."""
    return "position" if key is None else key.kind


def _unknown_place(key: PlaceKey | None) -> str:
    """What the detection says of a place that has no name. (A tag's value may be a secret.)"""
    if isinstance(key, BeaconKey):
        return f"{key.uuid}:{key.major}:{key.minor}"
    return f"geofence {key.id}" if isinstance(key, GeofenceKey) else _kind(key)
