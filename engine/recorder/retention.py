"""Deletes old traces and receptions, and creates days ahead (partitions on PostgreSQL).

SQL's clock says which days are old. Before anything is deleted, this process's clock is compared
with those of SQL and Redis. If two are far apart, one of them is wrong, and nothing is deleted.
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

import structlog

from engine.process.failures import database_may_recover, describe, redis_may_recover
from engine.process.health import ClockSkew
from engine.recorder.ledger import Ledger

log = structlog.get_logger(__name__)

DAYS_AHEAD = 3
MOST_SKEW = 300.0  # seconds
# A record counts for a day while that day can still be today in some time zone.
_DAYS_IN_EVERY_ZONE = 2
_PERIOD = 3600.0
_RETRY_PAUSE = 60.0


@dataclass(kw_only=True)
class Retention:
    """Creates days ahead and deletes old ones: at the start, then every hour.

    `days` is how many whole days are kept besides today. `max_age` (seconds) is how long after a
    detection its record may arrive and still count for the day.
    """

    ledger: Ledger
    days: int
    max_age: float
    clocks: ClockSkew

    async def run(self) -> None:
        """Run until cancelled. No error ends it, because the role can work without retention."""
        while True:
            pause = _PERIOD
            try:
                await self.run_once()
            except Exception as error:  # logged, with a traceback where somebody has to look
                is_odd = not (database_may_recover(error) or redis_may_recover(error))
                log.warning("retention failed", error=describe(error), exc_info=is_odd)
                pause = _RETRY_PAUSE
            await asyncio.sleep(pause)

    async def run_once(self) -> None:
        """Create days and, unless a clock is wrong, delete old ones."""
        async with self.ledger.transaction() as transaction:
            today = (await transaction.now()).date()
        first, last = today - timedelta(days=self.days), today + timedelta(days=DAYS_AHEAD)
        created = await self.ledger.create_days(first, last)
        if not await self.clocks.all_agree_within(MOST_SKEW):
            log.error("nothing old is deleted: this process's clock is far from another one")
            return
        counted = first - timedelta(days=_DAYS_IN_EVERY_ZONE + -(-self.max_age // 86_400))
        deleted = await self.ledger.delete_old(first, counted)
        if created or deleted:
            log.info("retention done", days_created=created, deleted=deleted, first_day=str(first))
