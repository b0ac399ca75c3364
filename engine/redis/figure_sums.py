"""Adds figures up in memory, and writes the sums to Redis every few seconds.

No other task waits for it. While Redis is down, a bounded number of sums is kept in memory; others
are dropped, and counted in a metric.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Protocol

from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from catalog.chunks import chunked
from engine.process.metrics import Metrics
from engine.redis.figure_store import CompanyDay
from rules.day_figures import CampaignReason, DayFigures

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
