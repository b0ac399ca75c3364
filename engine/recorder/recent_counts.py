"""Writes how many detections each beacon had in the last minutes to Redis, for the plan of a venue.

These counts may be too low. The recorder's batches do not wait for Redis, counts that cannot be
written are dropped, and a crash loses the counts of some seconds. The exact figures are in SQL.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping

from redis.exceptions import RedisError

from engine.process.metrics import Metrics
from engine.redis.recent_detections import BeaconMinute, RecentDetectionStore

_WRITE_SECONDS = 5.0
_MOST_GATHERED = 20_000  # pairs of a beacon and a minute, between two writes


class RecentCounts:
    """Gathers the counts of committed batches in memory. `run` writes them every few seconds."""

    name = "recent detections"

    def __init__(
        self, *, store: RecentDetectionStore, metrics: Metrics, pause: float = _WRITE_SECONDS
    ) -> None:
        self._store = store
        self._errors = metrics.redis_errors
        self._pause = pause
        self._gathered: Counter[BeaconMinute] = Counter()

    def note(self, counts: Mapping[BeaconMinute, int]) -> None:
        """Add the counts of a committed batch. Once the memory is full, a count whose beacon and
        minute are not gathered yet is dropped."""
        gathered = self._gathered
        for key, count in counts.items():
            if key in gathered or len(gathered) < _MOST_GATHERED:
                gathered[key] += count

    async def run(self) -> None:
        """Write the gathered counts every few seconds. On cancellation write the rest, and end."""
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
