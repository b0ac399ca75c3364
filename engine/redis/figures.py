"""Sums in Redis: outcomes of detections by company and day, detections of beacons by minute.

A company's day is one hash of sums, kept for a month. The number of its fields is bounded, for any
number of campaigns and of writing processes. FigureSums adds up in memory and writes every few
seconds; no other task waits for it. A minute of a venue is one hash, kept for a quarter of an hour.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from importlib.resources import files
from typing import Any, NamedTuple, Protocol

from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from catalog.chunks import chunked
from catalog.redis_connection import RedisClient
from engine.process.metrics import Metrics
from rules.model import CampaignReason, DayFigures, Reason

KEPT_DAYS = 32
# 24 hours of two kinds, 16 reasons, and campaigns by reason for the rest.
MOST_FIELDS = 512
_KEPT_MS = KEPT_DAYS * 24 * 3600 * 1000
_ADD = files("engine.redis").joinpath("scripts/add_figures.lua").read_text(encoding="utf-8")


class CompanyDay(NamedTuple):
    """The company and the day (UTC) of sums."""

    company_id: int
    day: date


class FigureStore:
    """Adds to sums and reads them. `deadline` is in seconds.

    Raises RedisError, OSError or TimeoutError.
    """

    def __init__(self, *, redis: RedisClient, prefix: str, deadline: float) -> None:
        self._redis = redis
        self._prefix = prefix
        self._deadline = deadline

    async def add(self, figures: Mapping[CompanyDay, DayFigures]) -> list[CompanyDay]:
        """Add these sums, in one round trip (on a cluster one for each node).

        Returns those that Redis refused. After TimeoutError some may have been added.
        """
        pipeline: Any = self._redis.pipeline(transaction=False)
        for place, day in figures.items():
            arguments = [part for pair in _fields(day) for part in pair]
            # (EVAL, not EVALSHA: a retry after NOSCRIPT would add the other sums twice.)
            pipeline.execute_command(
                "EVAL", _ADD, 1, self._key(place), _KEPT_MS, MOST_FIELDS, *arguments
            )
        async with asyncio.timeout(self._deadline):
            answers: list[Any] = await pipeline.execute(raise_on_error=False)
        return [
            place
            for place, answer in zip(figures, answers, strict=True)
            if isinstance(answer, Exception)
        ]

    async def read(self, company_id: int, first: date, last: date) -> dict[date, DayFigures]:
        """The sums of a company's days from `first` to `last`, both included; no empty days."""
        days = [first + timedelta(days=number) for number in range((last - first).days + 1)]
        pipeline: Any = self._redis.pipeline(transaction=False)
        for day in days:
            pipeline.hgetall(self._key(CompanyDay(company_id, day)))
        async with asyncio.timeout(self._deadline):
            answers: Sequence[Mapping[bytes, bytes]] = await pipeline.execute()
        return {day: _read(found) for day, found in zip(days, answers, strict=True) if found}

    def _key(self, place: CompanyDay) -> str:
        """The key of a day. The hash tag keeps a company's days in one slot of a cluster."""
        return f"{self._prefix}figures:{{{place.company_id}}}:{place.day.isoformat()}"


def _fields(figures: DayFigures) -> Iterator[tuple[str, int]]:
    for hour, count in figures.detections.items():
        yield f"d:{hour}", count
    for hour, count in figures.notifications.items():
        yield f"n:{hour}", count
    for reason, count in figures.reasons.items():
        yield f"r:{reason.value}", count
    for (campaign, reason), count in figures.campaigns.items():
        yield f"c:{campaign}:{reason.value}", count


def _read(fields: Mapping[bytes, bytes]) -> DayFigures:
    """The sums in a hash. Fields of another version of the engine are ignored."""
    figures = DayFigures()
    for field, value in fields.items():
        with suppress(ValueError):
            _read_field(figures, field.decode(), int(value))
    return figures


def _read_field(figures: DayFigures, field: str, count: int) -> None:
    kind, _, name = field.partition(":")
    if kind in ("d", "n"):
        hours = figures.detections if kind == "d" else figures.notifications
        hours[range(24).index(int(name))] = count
    elif kind == "r":
        figures.reasons[Reason(name)] = count
    elif kind == "c":
        campaign, _, reason = name.partition(":")
        figures.campaigns[CampaignReason(int(campaign), Reason(reason))] = count


_WRITE_SECONDS = 5.0
# Bounds of memory: days of companies, sums by campaign of one day, sums by campaign of all.
_MOST_DAYS = 5_000
_MOST_OF_A_DAY = 400
_MOST_BY_CAMPAIGN = 100_000
_DAYS_A_WRITE = 100


class FigureWriter(Protocol):
    """Writes sums. Raises RedisError, OSError or TimeoutError."""

    async def add(self, figures: Mapping[CompanyDay, DayFigures]) -> list[CompanyDay]:
        """Add these sums. Returns those that were refused.

        After TimeoutError some may have been added.
        """


class FigureSums:
    """Sums by company and day that are not written yet. `clock` in epoch seconds."""

    def __init__(
        self,
        *,
        store: FigureWriter,
        metrics: Metrics,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._errors = metrics.redis_errors
        self._dropped = metrics.figures_dropped
        self._clock = clock
        self._days: dict[CompanyDay, DayFigures] = {}
        self._by_campaign = 0

    def now(self) -> datetime:
        """The present time, whose day and hour get the next figures."""
        return datetime.fromtimestamp(self._clock(), UTC)

    def today(self, company_id: int, now: datetime) -> DayFigures | None:
        """The sums of a company's day. The caller adds to them before its next await.

        None, which is counted as dropped, if there is no room. Only `add_campaigns` may add sums by
        campaign.
        """
        return self._day(CompanyDay(company_id, now.date()))

    def add_campaigns(self, figures: DayFigures, counts: Mapping[CampaignReason, int]) -> None:
        """Add the counts of campaigns. Campaigns over the bounds are left out."""
        sums = figures.campaigns
        for each, count in counts.items():
            if each in sums:
                sums[each] += count
            elif self._by_campaign >= _MOST_BY_CAMPAIGN:
                self.drop(1)
            elif len(sums) < _MOST_OF_A_DAY:
                sums[each] = count
                self._by_campaign += 1

    def drop(self, count: int) -> None:
        """Count sums that are left out."""
        self._dropped.inc(count)

    def note_notifications(self, company_id: int, count: int) -> None:
        """Add `count` notifications that were published for a company."""
        now = self.now()
        figures = self.today(company_id, now) if count else None
        if figures is not None:
            figures.notifications[now.hour] += count

    async def run(self) -> None:
        """Write every few seconds until cancelled, and then the rest."""
        try:
            while True:
                await asyncio.sleep(_WRITE_SECONDS)
                await self.write()
        finally:
            await self.write()

    async def write(self) -> None:
        """Write all sums. Those that cannot be written are kept for the next write."""
        gathered, self._days, self._by_campaign = self._days, {}, 0
        parts = chunked(gathered.items(), _DAYS_A_WRITE)
        try:
            for part in parts:
                if not await self._write(dict(part)):
                    break
        finally:
            for part in parts:
                self._gather(dict(part))

    async def _write(self, days: Mapping[CompanyDay, DayFigures]) -> bool:
        """Write some days. Returns whether Redis answered."""
        try:
            refused = await self._store.add(days)
        except (TimeoutError, RedisTimeoutError):
            # Redis may have added some. Sums that are too low are better than sums counted twice.
            self._errors.inc()  # calls that the pipelines wait for log the outage
            self.drop(sum(figures.size for figures in days.values()))
            return False
        except (RedisError, OSError):
            self._errors.inc()
            self._gather(days)
            return False
        if refused:
            self._errors.inc()
            self._gather({place: days[place] for place in refused})
        return True

    def _gather(self, days: Mapping[CompanyDay, DayFigures]) -> None:
        for place, figures in days.items():
            found = self._day(place)
            if found is None:
                continue
            found.detections.update(figures.detections)
            found.notifications.update(figures.notifications)
            found.reasons.update(figures.reasons)
            self.add_campaigns(found, figures.campaigns)

    def _day(self, place: CompanyDay) -> DayFigures | None:
        found = self._days.get(place)
        if found is None:
            if len(self._days) >= _MOST_DAYS:
                self.drop(1)
                return None
            found = self._days[place] = DayFigures()
        return found


MINUTES = 15
_KEPT_SECONDS = (MINUTES + 5) * 60
_AT_ONCE = 500


class BeaconMinute(NamedTuple):
    """A minute of a beacon at a venue; minutes are counted from the epoch."""

    venue_id: int
    beacon_id: int
    minute: int


class RecentDetectionStore:
    """Adds and reads detections. `deadline` bounds each call, in seconds.

    Raises RedisError, OSError or TimeoutError.
    """

    def __init__(self, *, redis: RedisClient, prefix: str, deadline: float) -> None:
        self._redis = redis
        self._prefix = f"{prefix}recent:"
        self._deadline = deadline

    async def add(self, counts: Mapping[BeaconMinute, int]) -> None:
        """Add these numbers of detections."""
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
