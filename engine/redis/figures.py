"""Sums in Redis: outcomes of detections by company and day, detections of beacons by minute.

A company's day is one hash of sums, kept for a month: `r:REASON`, `c:CAMPAIGN:REASON`. The number
of its fields is bounded, for any number of campaigns and of writing processes. A minute of a venue
is one hash, kept for a quarter of an hour.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, timedelta
from importlib.resources import files
from typing import NamedTuple

from redis.exceptions import RedisError

from catalog.bounds import chunked
from engine.process.metrics import Metrics
from engine.redis.store import RedisStore, write_often
from rules.model import DayFigures, Reason

KEPT_DAYS = 32
# Every reason, and campaigns by reason for the rest.
MOST_FIELDS = 512
_KEPT_MS = KEPT_DAYS * 24 * 3600 * 1000
_ADD = files("engine.redis").joinpath("scripts/add_figures.lua").read_text(encoding="utf-8")


class CompanyDay(NamedTuple):
    """The company and the day (UTC) of sums."""

    company_id: int
    day: date


class FigureStore(RedisStore):
    async def add(self, days: Mapping[CompanyDay, Mapping[str, int]]) -> None:
        """Add these sums by field, in one round trip (on a cluster one for each node).

        After an error some may have been added.
        """
        pipeline = self._pipeline()
        for day, sums in days.items():
            arguments = [part for pair in sums.items() for part in pair]
            # (EVAL, not EVALSHA: a retry after NOSCRIPT would add the other sums twice.)
            pipeline.execute_command(
                "EVAL", _ADD, 1, self._key(day), _KEPT_MS, MOST_FIELDS, *arguments
            )
        await self._answer(pipeline.execute())

    async def read(self, company_id: int, first: date, last: date) -> dict[date, DayFigures]:
        """The sums of a company's days from `first` to `last`, both included; no empty days."""
        days = [first + timedelta(days=number) for number in range((last - first).days + 1)]
        pipeline = self._pipeline()
        for day in days:
            pipeline.hgetall(self._key(CompanyDay(company_id, day)))
        answers = await self._answer(pipeline.execute())
        return {day: _read(found) for day, found in zip(days, answers, strict=True) if found}

    def _key(self, place: CompanyDay) -> str:
        """The key of a day. The hash tag keeps a company's days in one slot of a cluster."""
        return f"{self.prefix}figures:{{{place.company_id}}}:{place.day.isoformat()}"


def reason_field(reason: Reason) -> str:
    """The field of campaigns, or detections that were refused before their campaigns were checked,
    with this reason."""
    return f"r:{reason.value}"


def campaign_field(campaign_id: int, reason: Reason) -> str:
    """The field of decisions about a campaign with this reason."""
    return f"c:{campaign_id}:{reason.value}"


def _read(fields: Mapping[bytes, bytes]) -> DayFigures:
    """The sums in a hash. Fields of another version of the engine are ignored."""
    figures = DayFigures()
    for name, value in fields.items():
        with suppress(ValueError):
            _read_field(figures, name.decode(), int(value))
    return figures


def _read_field(figures: DayFigures, field: str, count: int) -> None:
    kind, _, name = field.partition(":")
    if kind == "r":
        figures.reasons[Reason(name)] = count
    elif kind == "c":
        campaign, _, reason = name.partition(":")
        figures.campaigns[int(campaign), Reason(reason)] = count


MINUTES = 15
_KEPT_SECONDS = (MINUTES + 5) * 60
_AT_ONCE = 500
_WRITE_SECONDS = 5.0


class BeaconMinute(NamedTuple):
    """A minute of a beacon at a venue; minutes are counted from the epoch."""

    venue_id: int
    beacon_id: int
    minute: int


class RecentDetectionStore(RedisStore):
    async def add(self, counts: Mapping[BeaconMinute, int]) -> None:
        for part in chunked(counts.items(), _AT_ONCE):
            pipeline = self._pipeline()
            keys = set()
            for (venue_id, beacon_id, minute), count in part:
                key = self._key(venue_id, minute)
                pipeline.hincrby(key, str(beacon_id), count)
                keys.add(key)
            for key in keys:
                pipeline.expire(key, _KEPT_SECONDS)
            await self._answer(pipeline.execute())

    async def read(self, venue_id: int, now: float) -> dict[int, int]:
        """The detections of the last MINUTES minutes, this one included, by beacon."""
        last = int(now // 60)
        pipeline = self._pipeline()
        for minute in range(last - MINUTES + 1, last + 1):
            pipeline.hgetall(self._key(venue_id, minute))
        found: Counter[bytes] = Counter()
        for minute_counts in await self._answer(pipeline.execute()):
            for beacon_id, count in minute_counts.items():
                found[beacon_id] += int(count)
            await asyncio.sleep(0)  # a minute of 10,000 beacons takes milliseconds
        return {int(beacon_id): count for beacon_id, count in found.items()}

    def _key(self, venue_id: int, minute: int) -> str:
        return f"{self.prefix}recent:{venue_id}:{minute}"


@dataclass(kw_only=True, eq=False)
class RecentCounts(RecentDetectionStore):
    """Writes how many detections each beacon had in the last minutes to Redis, every few seconds.

    They are for the plan of a venue and may be too low: batches do not wait for Redis, counts that
    cannot be written are dropped, and a crash loses those of some seconds. SQL has exact figures.
    """

    metrics: Metrics
    _gathered: Counter[BeaconMinute] = field(default_factory=Counter)

    def note(self, counts: Mapping[BeaconMinute, int]) -> None:
        """Add the counts of a committed batch."""
        self._gathered.update(counts)

    async def run(self) -> None:
        """Write the gathered counts every few seconds. On cancellation write the rest, and end."""
        await write_often(self._write, _WRITE_SECONDS)

    async def _write(self) -> None:
        counts, self._gathered = self._gathered, Counter()
        if not counts:
            return
        try:
            await self.add(counts)
        except (RedisError, OSError, TimeoutError):
            self.metrics.redis_errors.inc()
