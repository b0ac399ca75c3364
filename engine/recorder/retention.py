"""How long traces, receptions and the like are kept, and the day partitions on PostgreSQL.

A trace row goes into the partition of its UTC day, made ahead. Rows of days that have none (too
old, too far ahead, a wrong clock) are in the default partition; when their day is made they move
into it. Dropping a day then costs nothing, however many rows it has.

All of it goes by SQL's clock. Before anything is deleted the other clocks are asked: where one of
them is far from SQL's, one of the two is wrong, and nothing is deleted.
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
# A record can still be counted for a day while it may arrive on it, seen from any time zone.
_DAYS_IN_EVERY_ZONE = 2
_PERIOD = 3600.0
_AGAIN = 10.0
_AGAIN_AFTER_A_MISTAKE = 600.0

# The present, as a server tells it.
Clock = Callable[[], Awaitable[datetime]]


class Kept(NamedTuple):
    """What is not deleted: traces dated from `since` to `until`, receptions and presences recorded
    since then, and what the figures from `day` on were counted from."""

    since: datetime
    until: datetime
    day: date


class Store(Protocol):
    """What a ledger keeps for a while. All calls may be made by several processes at once."""

    async def now(self) -> datetime:
        """The present on SQL's clock, in UTC."""

    async def make_days(self, first: date, last: date) -> int:
        """Make the partitions of these UTC days where they are missing; how many were made."""

    async def forget(self, kept: Kept) -> int:
        """Forget all but what is kept; how many partitions were dropped and rows deleted."""


class Retention:
    """Makes days ahead and forgets old ones: at the start, then every hour.

    `days` is how many whole days are kept besides today. `max_age` (seconds) is how long after a
    detection its record may arrive and still count for the day. `clock` is this process's own,
    aware; `clocks` are those of other servers, by name.
    """

    def __init__(
        self,
        store: Store,
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
        """Until cancelled. No error of SQL, nor any other, ends it: a role lives without it."""
        while True:
            pause = await self._tend_or_say()
            await asyncio.sleep(pause)

    async def _tend_or_say(self) -> float:
        """Tend once; how long to pause then."""
        try:
            await self.tend()
        except Exception as error:  # sorted: passes soon, or a person has to look
            if database_may_recover(error) or redis_may_recover(error):
                log.warning("old traces cannot be dropped now", error=describe(error))
                return _AGAIN
            log.exception("old traces cannot be dropped")
            return _AGAIN_AFTER_A_MISTAKE
        return _PERIOD

    async def tend(self) -> None:
        """Once."""
        today = (await self._store.now()).date()
        first = today - self._days
        made = await self._store.make_days(first, today + timedelta(days=DAYS_AHEAD))
        if await self._some_clock_is_wrong():
            return
        until = today + timedelta(days=DAYS_AHEAD + 1)
        forgotten = await self._store.forget(
            Kept(_midnight(first), _midnight(until), first - self._spare)
        )
        if made or forgotten:
            log.info("traces tended", days_made=made, forgotten=forgotten, first_day=str(first))

    async def _some_clock_is_wrong(self) -> bool:
        """Whether this process's clock is far from another one, and which: that is logged."""
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
        """How far this process's clock is ahead, at least: an answer that takes long is no skew."""
        asked = self._clock()
        told = await ask()
        answered = self._clock()
        return max(asked - told, timedelta()) or min(answered - told, timedelta())


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
