"""Deletes old traces and receptions, and creates the day partitions on PostgreSQL.

A trace row goes into the partition of its UTC day, which is created ahead. Rows of days without a
partition (too old, too far ahead, a wrong clock) are in the default partition; when the partition
of their day is created, they move into it. Dropping a day then costs nothing, however many rows it
has.

SQL's clock says which days are old. Before anything is deleted, this process's clock is compared
with SQL's and with those of other servers. If two are far apart, one of them is wrong, and nothing
is deleted.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple, Protocol

import structlog

from engine.process.failures import database_may_recover, describe, redis_may_recover

log = structlog.get_logger(__name__)

DAYS_AHEAD = 3
MOST_SKEW = timedelta(minutes=5)
# A record counts for a day while that day can still be today in some time zone.
_DAYS_IN_EVERY_ZONE = 2
_PERIOD = 3600.0
_RETRY_PAUSE = 10.0
_FAULT_PAUSE = 600.0

# The time on a server's clock.
Clock = Callable[[], Awaitable[datetime]]


class RetentionWindow(NamedTuple):
    """The rows to keep.

    They are traces dated from `since` to `until`, receptions and presences recorded from `since`
    on, and the devices that the figures from `day` on count.
    """

    since: datetime
    until: datetime
    day: date


class RetentionStore(Protocol):
    """The tables whose rows are deleted by age. Several processes may call it at once."""

    async def now(self) -> datetime:
        """The time on SQL's clock, in UTC."""

    async def create_days(self, first: date, last: date) -> int:
        """Create the missing partitions of these UTC days; returns how many were created."""

    async def delete_outside(self, window: RetentionWindow) -> int:
        """Delete rows outside the window; how many partitions were dropped and rows deleted."""


class Retention:
    """Creates days ahead and deletes old ones: at the start, then every hour.

    `days` is how many whole days are kept besides today. `max_age` (seconds) is how long after a
    detection its record may arrive and still count for the day. `clock` is this process's own,
    aware; `clocks` are those of other servers, by name.
    """

    def __init__(
        self,
        store: RetentionStore,
        *,
        days: int,
        max_age: float,
        clock: Callable[[], datetime],
        clocks: Mapping[str, Clock],
    ) -> None:
        self._store = store
        self._days = timedelta(days=days)
        self._spare = timedelta(days=_DAYS_IN_EVERY_ZONE + -(-max_age // 86_400))
        self._clock = clock
        self._clocks = clocks

    async def run(self) -> None:
        """Run until cancelled. No error ends it, because the role can work without retention."""
        while True:
            pause = _PERIOD
            try:
                await self.run_once()
            except Exception as error:  # temporary, or logged for a person to look at
                if database_may_recover(error) or redis_may_recover(error):
                    log.warning("old traces cannot be dropped now", error=describe(error))
                    pause = _RETRY_PAUSE
                else:
                    log.exception("old traces cannot be dropped")
                    pause = _FAULT_PAUSE
            await asyncio.sleep(pause)

    async def run_once(self) -> None:
        """Create days and, unless a clock is wrong, delete old ones."""
        today = (await self._store.now()).date()
        first, last = today - self._days, today + timedelta(days=DAYS_AHEAD)
        created = await self._store.create_days(first, last)
        if await self._some_clock_is_wrong():
            return
        window = RetentionWindow(
            _midnight(first), _midnight(last + timedelta(days=1)), first - self._spare
        )
        deleted = await self._store.delete_outside(window)
        if created or deleted:
            log.info("retention done", days_created=created, deleted=deleted, first_day=str(first))

    async def _some_clock_is_wrong(self) -> bool:
        """Whether this process's clock is far from another one; the difference is logged."""
        wrong = False
        for server, ask in {"sql": self._store.now, **self._clocks}.items():
            skew = await self._skew(ask)
            if abs(skew) > MOST_SKEW:
                wrong = True
                log.error(
                    "nothing old is deleted: the clock of this process is far from another one",
                    server=server,
                    seconds_ahead=round(skew.total_seconds()),
                )
        return wrong

    async def _skew(self, ask: Clock) -> timedelta:
        """How far this process's clock is ahead, at least; the answer's delay is no skew."""
        began = self._clock()
        server_time = await ask()
        ended = self._clock()
        return max(began - server_time, timedelta()) or min(ended - server_time, timedelta())


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
