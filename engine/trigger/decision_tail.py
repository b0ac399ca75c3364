"""Shows decisions as they happen to those who watch (`proximity tail`, the console).

Once a second the trigger asks Redis who watches; while nobody does, that is all it costs. A watcher
is written a bounded number of the decisions that fit its filter, a few times a second, with the
number of those left out. No batch waits for it.
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

_LOOK_SECONDS = 1.0
_WRITE_SECONDS = 0.2
_GONE_SECONDS = 5.0  # without a sign of life
_MOST_SEEN = 1000  # watchers, killed ones among them
_COMPANY = attrgetter("company_id")

_Beacons = Mapping[BeaconKey, IndexedBeacon | None]


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
        self._seen: dict[str, Watcher] = {}
        self._watchers: dict[str, Watcher] = {}  # those that are served
        self._table = WatcherTable([])

    def note_refused(
        self,
        detections: Sequence[DecodedDetection],
        decisions: Sequence[Decision],
        beacons: _Beacons,
    ) -> None:
        """Detections that fire nothing, each with its decision."""
        if not self._watchers:
            return
        now, begin = self._clock(), 0
        # (`beacons` may be all that this process knows: only the batch's own are looked up.)
        companies = set(map(_COMPANY, decisions)) if self._table.somebody_looks else ()
        while begin < len(detections):
            looking = self._table.looking_at(companies)
            end = len(detections)
            if looking:
                decided = zip(detections[begin:], decisions[begin:], strict=True)
                end = begin + _look(decided, beacons, looking, now)
            self._table.leave_out(decisions[begin:end], looking)
            if looking:
                self._table.refresh()
            begin = end

    def note_claims(self, claimed: Sequence[Grant], denied: Sequence[Grant]) -> None:
        """Grants that hold their claim or need none, and those that were denied one.

        They are those of a lane: of one company.
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
        now, looked_at = self._clock(), 0
        for decided in decided_by_claims(claimed, denied):
            looked_at += 1
            for watcher in group:
                watcher.offer(decided, now)
        for watcher in group:
            watcher.left_out += count - looked_at
        self._table.refresh()

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
                self._serve({})
            await asyncio.sleep(_WRITE_SECONDS if self._watchers else _LOOK_SECONDS)

    def _note_watchers(self, found: Mapping[str, TailFilter], now: float) -> list[str]:
        """Serve the first few that are alive. Returns those that have not moved for a while: they
        were killed, and their places are others'."""
        seen: dict[str, Watcher] = {}
        for name, wanted in islice(found.items(), _MOST_SEEN):
            watcher = self._seen.get(name) or Watcher(wanted, now)
            if watcher.wanted != wanted:
                watcher.wanted, watcher.beat_at = wanted, now
            seen[name] = watcher
        alive = [name for name, each in seen.items() if now - each.beat_at < _GONE_SECONDS]
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


def _look(
    decided: Iterable[tuple[DecodedDetection, Decision]],
    beacons: _Beacons,
    looking: Mapping[int, Sequence[Watcher]],
    now: float,
) -> int:
    """Offer each to those who look, until one of them has no more room. How many were offered."""
    count = 0
    for detection, decision in decided:
        count += 1
        group = looking.get(decision.company_id)
        if group is None:
            continue
        outcome = DecidedDetection(detection, beacons[detection.key], decision)
        filled = [watcher.offer(outcome, now) for watcher in group]
        if any(filled):
            break
    return count
