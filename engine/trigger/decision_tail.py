"""Passes decisions to watchers as they happen (`proximity tail`, the console).

The trigger reads the list of watchers from Redis once a second; without a watcher there is no other
cost. A few times a second, each watcher gets a bounded number of the decisions that match its
filter, and the number of those left out. The pipeline does not wait for it.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice
from operator import attrgetter

from redis.exceptions import RedisError

from engine.kafka.detections import BeaconKey, DecodedDetection
from engine.process.metrics import Metrics
from engine.redis.tail_store import TailFilter, TailStore, served_watchers
from engine.trigger.beacon_cache import IndexedBeacon
from engine.trigger.decision_record import DecidedDetection, decided_by_claims
from engine.trigger.grants import Grant
from engine.trigger.watchers import (
    Watcher,
    WatcherTable,
    first_detections,
    share_room,
)
from rules.outcome import Decision

_POLL_SECONDS = 1.0
_WRITE_SECONDS = 0.2
_DEAD_SECONDS = 5.0  # without a heartbeat
_MOST_SEEN = 1000  # watchers, including killed ones
_COMPANY = attrgetter("company_id")

_Beacons = Mapping[BeaconKey, IndexedBeacon | None]


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
        self._seen: dict[str, Watcher] = {}
        self._watchers: dict[str, Watcher] = {}  # those that are served
        self._table = WatcherTable([])

    def wants(self, _count: int, /) -> bool:
        """Whether anybody looks at decisions; else they are only counted."""
        return self._table.somebody_looks

    def note_undecoded(self, decisions: Sequence[Decision]) -> None:
        """Count the decisions as left out."""
        if self._watchers:
            self._table.leave_out(decisions, ())

    def note_refused(
        self,
        detections: Sequence[DecodedDetection],
        decisions: Sequence[Decision],
        beacons: _Beacons,
    ) -> None:
        """Offer detections that fire nothing, each with its decision, to the watchers."""
        if not self._watchers:
            return
        now, begin = self._clock(), 0
        # (`beacons` may be the whole cache, so only the beacons of the batch are looked up.)
        companies = set(map(_COMPANY, decisions)) if self._table.somebody_looks else ()
        while begin < len(detections):
            watching = self._table.looking_at(companies)
            end = len(detections)
            if watching:
                decided = zip(detections[begin:], decisions[begin:], strict=True)
                end = begin + _offer_all(decided, beacons, watching, now)
            self._table.leave_out(decisions[begin:end], watching)
            if watching:
                self._table.refresh()
            begin = end

    def note_claims(self, claimed: Sequence[Grant], denied: Sequence[Grant]) -> None:
        """Offer the decisions of grants to the watchers. All grants are of one company.

        `claimed` hold a claim or need none, `denied` were denied one.
        """
        if not self._watchers or not (claimed or denied):
            return
        group = self._table.group_of((claimed or denied)[0].beacon.company_reference.id)
        if not group:
            return
        count = len({id(each.detection) for each in chain(claimed, denied)})
        if all(watcher.is_plain for watcher in group):
            most = max(watcher.room for watcher in group)
            claimed, denied = first_detections(claimed, denied, most)
        now, offered = self._clock(), 0
        for decided in decided_by_claims(claimed, denied):
            offered += 1
            for watcher in group:
                watcher.offer(decided, now)
        for watcher in group:
            watcher.left_out += count - offered
        self._table.refresh()

    async def run(self) -> None:
        """Read the list of watchers, and write to them, until cancelled."""
        clock = asyncio.get_running_loop().time
        next_poll = clock()
        while True:
            try:
                if clock() >= next_poll:
                    next_poll = clock() + _POLL_SECONDS
                    dead = self._note_watchers(await self._store.watchers(), clock())
                    if dead:
                        await self._store.forget(dead)
                await self._write()
            except (RedisError, OSError, TimeoutError):
                # Calls that the pipeline waits for log the outage.
                self._errors.inc()
                self._serve({})
            await asyncio.sleep(_WRITE_SECONDS if self._watchers else _POLL_SECONDS)

    def _note_watchers(self, found: Mapping[str, TailFilter], now: float) -> list[str]:
        """Serve the first few watchers with a heartbeat. Returns the names of dead watchers."""
        seen: dict[str, Watcher] = {}
        for name, wanted in islice(found.items(), _MOST_SEEN):
            watcher = self._seen.get(name) or Watcher(wanted, now)
            if watcher.wanted != wanted:
                watcher.wanted, watcher.beat_at = wanted, now
            seen[name] = watcher
        alive = [name for name, each in seen.items() if now - each.beat_at < _DEAD_SECONDS]
        self._seen = seen
        served = served_watchers({name: seen[name].wanted for name in alive})
        self._serve({name: seen[name] for name in served})
        return [name for name in seen if name not in alive]

    def _serve(self, watchers: dict[str, Watcher]) -> None:
        self._watchers = watchers
        self._table = WatcherTable(watchers.values())

    async def _write(self) -> None:
        share_room(self._watchers.values())
        to_write = {}
        for name, watcher in self._watchers.items():
            if watcher.gathered:
                to_write[name], watcher.gathered = watcher.gathered, []
        self._table.refresh()
        if to_write:
            await self._store.write(to_write)


def _offer_all(
    decided: Iterable[tuple[DecodedDetection, Decision]],
    beacons: _Beacons,
    watching: Mapping[int, Sequence[Watcher]],
    now: float,
) -> int:
    """Offer detections to watchers until one of these is full. Returns how many were offered."""
    count = 0
    for detection, decision in decided:
        count += 1
        group = watching.get(decision.company_id)
        if group is None:
            continue
        outcome = DecidedDetection(detection, beacons[detection.key], decision)
        filled = [watcher.offer(outcome, now) for watcher in group]
        if any(filled):
            break
    return count
