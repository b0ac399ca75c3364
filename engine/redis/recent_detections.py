"""Stores how many detections each beacon of a venue had, by minute, for a quarter of an hour.

One hash a venue and minute, with a field for each beacon that had any.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from catalog.chunks import chunked
from catalog.redis_connection import RedisClient

MINUTES = 15
_KEPT_SECONDS = (MINUTES + 5) * 60
_AT_ONCE = 500


class BeaconMinute(NamedTuple):
    """A minute of a beacon at a venue; minutes are counted from the epoch."""

    venue_id: int
    beacon_id: int
    minute: int


class RecentDetectionStore:
    """`deadline` bounds each call, in seconds. Raises RedisError, OSError or TimeoutError."""

    def __init__(self, *, redis: RedisClient, prefix: str, deadline: float) -> None:
        self._redis = redis
        self._prefix = f"{prefix}recent:"
        self._deadline = deadline

    async def add(self, counts: Mapping[BeaconMinute, int]) -> None:
        """Add detections."""
        for part in chunked(counts.items(), _AT_ONCE):
            pipeline: Any = self._redis.pipeline(transaction=False)
            keys = set()
            for (venue_id, beacon_id, minute), count in part:
                key = self._key(venue_id, minute)
                pipeline.hincrby(key, str(beacon_id), count)
                keys.add(key)
            for key in keys:
                pipeline.expire(key, _KEPT_SECONDS)
            await self._run(pipeline)

    async def read(self, venue_id: int, now: float) -> dict[int, int]:
        """The detections of the last MINUTES minutes, this one included, by beacon."""
        last = int(now // 60)
        pipeline: Any = self._redis.pipeline(transaction=False)
        for minute in range(last - MINUTES + 1, last + 1):
            pipeline.hgetall(self._key(venue_id, minute))
        found: Counter[bytes] = Counter()
        for minute_counts in await self._run(pipeline):
            for beacon_id, count in minute_counts.items():
                found[beacon_id] += int(count)
            await asyncio.sleep(0)  # a minute of 10,000 beacons takes milliseconds
        return {int(beacon_id): count for beacon_id, count in found.items()}

    def _key(self, venue_id: int, minute: int) -> str:
        return f"{self._prefix}{venue_id}:{minute}"

    async def _run(self, pipeline: Any) -> list[Any]:
        async with asyncio.timeout(self._deadline):
            answers: list[Any] = await pipeline.execute()
        return answers
