"""Passes the detections of the last minutes on to Redis, for the plan of a venue.

They are an extra: no batch waits for Redis, what cannot be written is dropped, and a crash loses
some seconds. The exact figures are those of SQL.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping

from redis.exceptions import RedisError

from engine.process.metrics import Metrics
from engine.redis.recent_detections import BeaconMinute, RecentDetectionStore

_WRITE_SECONDS = 5.0
_MOST_GATHERED = 20_000  # minutes of beacons between two writes


class RecentCounts:
    """Gathers counts, and writes them every few seconds while `run` runs."""

    name = "recent detections"

    def __init__(
        self, *, store: RecentDetectionStore, metrics: Metrics, pause: float = _WRITE_SECONDS
    ) -> None:
        self._store = store
        self._errors = metrics.redis_errors
        self._pause = pause
        self._gathered: Counter[BeaconMinute] = Counter()

    def note(self, counts: Mapping[BeaconMinute, int]) -> None:
        """Add what was committed; beyond the bound only beacons that are there already."""
        gathered = self._gathered
        for key, count in counts.items():
            if key in gathered or len(gathered) < _MOST_GATHERED:
                gathered[key] += count

    async def run(self) -> None:
        """Write what was gathered every few seconds until cancelled, and then the rest."""
        try:
            while True:
                await asyncio.sleep(self._pause)
                await self._write()
        finally:
            await self._write()

    async def _write(self) -> None:
        counts, self._gathered = self._gathered, Counter()
        if not counts:
            return
        try:
            await self._store.add(counts)
        except (RedisError, OSError, TimeoutError):
            self._errors.inc()
