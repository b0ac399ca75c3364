"""Caches the recent detections by beacon of large venues for a few seconds.

Every page that shows a venue requests them every ten seconds, and counting those of 10,000 beacons
takes a fifth of a second. Without the cache a few such pages would delay all other requests.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import partial
from typing import NamedTuple

import orjson


class _VenueKey(NamedTuple):
    company_id: int
    venue_id: int


class BeaconCounts(NamedTuple):
    """Each beacon with any detection, the most first, as JSON; `at` is when they were counted."""

    at: datetime
    json: bytes


class VenueCounts:
    """Caches the counts of venues for `seconds`; over `most_bytes` it drops the oldest.

    Counts of up to `few` beacons are not cached, because they cost little. Requests that come while
    a venue is being counted share that count, or its error. The company is a part of the key.
    `timer` measures the seconds.
    """

    def __init__(
        self,
        *,
        seconds: float = 5.0,
        few: int = 200,
        most_bytes: int = 8 * 1024 * 1024,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._few = few
        self._left = most_bytes
        self._timer = timer
        self._kept: OrderedDict[_VenueKey, tuple[float, BeaconCounts]] = OrderedDict()
        self._counting: dict[_VenueKey, asyncio.Task[BeaconCounts]] = {}

    async def counts(
        self,
        company_id: int,
        venue_id: int,
        count: Callable[[int], Awaitable[Mapping[int, int]]],
        clock: Callable[[], datetime],
    ) -> BeaconCounts:
        """The counts of a venue, by `count` if none are kept. Raises the errors of `count`."""
        key = _VenueKey(company_id, venue_id)
        until, kept = self._kept.get(key, (0.0, None))
        if kept is not None and self._timer() < until:
            return kept
        counting = self._counting.get(key)
        if counting is None:
            counting = asyncio.create_task(self._count(key, count, clock))
            self._counting[key] = counting
            counting.add_done_callback(partial(self._ended, key))
        # Shielded, because others may wait for it; `count` has a deadline of its own.
        return await asyncio.shield(counting)

    async def _count(
        self,
        key: _VenueKey,
        count: Callable[[int], Awaitable[Mapping[int, int]]],
        clock: Callable[[], datetime],
    ) -> BeaconCounts:
        at, found = clock(), await count(key.venue_id)
        listed = sorted(found.items(), key=lambda each: (-each[1], each[0]))
        counted = BeaconCounts(
            at, orjson.dumps([{"id": beacon, "detections": count} for beacon, count in listed])
        )
        if len(listed) > self._few:
            self._keep(key, counted)
        return counted

    def _keep(self, key: _VenueKey, counted: BeaconCounts) -> None:
        self._drop(key)
        self._kept[key] = (self._timer() + self._seconds, counted)
        self._left -= len(counted.json)
        while self._left < 0:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: _VenueKey) -> None:
        _, dropped = self._kept.pop(key, (0.0, None))
        if dropped is not None:
            self._left += len(dropped.json)

    def _ended(self, key: _VenueKey, counting: asyncio.Task[BeaconCounts]) -> None:
        del self._counting[key]
        if not counting.cancelled():
            counting.exception()  # retrieved, so that asyncio does not log it as forgotten
