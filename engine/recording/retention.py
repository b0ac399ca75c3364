"""How long traces, receptions and the like are kept, and the day partitions on PostgreSQL.

A trace row goes into the partition of its UTC day, made ahead. Rows of days that have none (too
old, too far ahead, a wrong clock) are in the default partition; when their day is made they move
into it. Dropping a day then costs nothing, however many rows it has.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import Protocol

import structlog

from engine.failures import database_may_recover, describe

log = structlog.get_logger(__name__)

DAYS_AHEAD = 3
_PERIOD = 3600.0
_AGAIN = 10.0


class Store(Protocol):
    """What a ledger keeps for a while. Both calls may be made by several processes at once."""

    async def make_days(self, first: date, last: date) -> int:
        """Make the partitions of these UTC days where they are missing; how many were made."""

    async def forget_before(self, limit: datetime) -> int:
        """Drop traces, receptions and presences of before `limit`, and what the figures of days
        before it were counted from; how many partitions were dropped and rows deleted."""


class Retention:
    """Makes days ahead and forgets old ones: at the start, then every hour.

    `days` is how many whole days are kept besides today. `clock` gives the present, aware.
    """

    def __init__(self, store: Store, *, days: int, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._days = days
        self._clock = clock

    async def run(self) -> None:
        """Until cancelled. While SQL does not answer it is asked again."""
        while True:
            try:
                await self.tend()
            except Exception as error:  # sorted: passes again, or goes up and stops the process
                if not database_may_recover(error):
                    raise
                log.warning("old traces cannot be dropped now", error=describe(error))
                await asyncio.sleep(_AGAIN)
            else:
                await asyncio.sleep(_PERIOD)

    async def tend(self) -> None:
        """Once."""
        today = self._clock().astimezone(UTC).date()
        first = today - timedelta(days=self._days)
        made = await self._store.make_days(first, today + timedelta(days=DAYS_AHEAD))
        forgotten = await self._store.forget_before(datetime.combine(first, time(), UTC))
        if made or forgotten:
            log.info("traces tended", days_made=made, forgotten=forgotten, first_day=str(first))
