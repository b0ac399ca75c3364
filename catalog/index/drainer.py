"""The background task that keeps the index up to date while its process runs."""

import asyncio
import random
from collections.abc import Callable

import structlog
from asyncpg import InterfaceError, PostgresError
from redis.exceptions import RedisError
from sqlalchemy.exc import SQLAlchemyError

from catalog.database import Database
from catalog.errors import IndexWriteError
from catalog.index.comparison import LagListener
from catalog.index.content import enqueue_date_changes
from catalog.index.drain import DrainResult, drain_once, rebuild_if_missing
from catalog.index.writer import IndexStore
from catalog.sql_failures import database_may_recover

_log = structlog.get_logger(__name__)

# The errors while SQL or Redis is down, the index is missing, or another process writes it.
OUTAGES = (
    SQLAlchemyError,
    PostgresError,
    InterfaceError,
    RedisError,
    OSError,
    TimeoutError,
    IndexWriteError,
)
_DATE_CHECK_SECONDS = 60.0


class OutboxDrainer:
    """Drains the outbox every `poll` seconds, and regularly compares the index with SQL.

    An outage of SQL or Redis is logged once and retried, after a pause that doubles up to
    `longest_pause`. Any other error is a mistake in the program and ends `run`. Each pause is
    multiplied by `jitter()`, a factor near 1. `failures` counts consecutive failures. `on_lag` is
    called with the number of generations that Redis is behind.
    """

    def __init__(
        self,
        *,
        database: Database,
        store: IndexStore,
        poll: float = 0.25,
        comparison_interval: float = 1.0,
        longest_pause: float = 10.0,
        clock: Callable[[], float],
        jitter: Callable[[], float] = lambda: random.uniform(0.8, 1.2),  # noqa: S311
        on_lag: LagListener = lambda _: None,
    ) -> None:
        self._database = database
        self._store = store
        self._poll = poll
        self._comparison_interval = comparison_interval
        self._longest_pause = longest_pause
        self._clock = clock
        self._jitter = jitter
        self._on_lag = on_lag
        self.failures = 0
        self._compared_at: float | None = None
        self._dates_checked_at: float | None = None
        self._nudged = asyncio.Event()

    def nudge(self) -> None:
        """Drain at once: rows were just written. A pause after a failure is not shortened."""
        self._nudged.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set. Cancelling is safe: rows not committed are drained again."""
        while not stop.is_set():
            self._nudged.clear()
            pause = await self._step()
            if pause:
                await _wait(stop, pause, None if self.failures else self._nudged)

    async def _step(self) -> float:
        try:
            outcome = await self._work()
        except OUTAGES as error:
            return self._failed(error)
        if self.failures:
            _log.info("index is kept up to date again", failures=self.failures)
            self.failures = 0
        return 0.0 if outcome is DrainResult.DRAINED else self._poll * self._jitter()

    async def _work(self) -> DrainResult:
        now = self._clock()
        if self._compared_at is None or now - self._compared_at >= self._comparison_interval:
            await rebuild_if_missing(self._database, self._store, on_lag=self._on_lag)
            self._compared_at = now
        if self._dates_checked_at is None or now - self._dates_checked_at >= _DATE_CHECK_SECONDS:
            await enqueue_date_changes(self._database)
            self._dates_checked_at = now
        return await drain_once(self._database, self._store, on_lag=self._on_lag)

    def _failed(self, error: Exception) -> float:
        # Redis may have lost the index: compare it before anything else.
        self._compared_at = None
        self.failures += 1
        pause = min(self._poll * 2.0 ** min(self.failures, 16), self._longest_pause)
        if self.failures == 1:  # one line for the outage; its end has another
            _log.warning(
                "index cannot be kept up to date",
                error=_one_line(error),
                passes=not isinstance(error, SQLAlchemyError) or database_may_recover(error),
            )
        return pause * self._jitter()


async def _wait(stop: asyncio.Event, seconds: float, nudged: asyncio.Event | None) -> None:
    events = [event for event in (stop, nudged) if event is not None]
    waits = {asyncio.create_task(event.wait()) for event in events}
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _one_line(error: Exception) -> str:
    text = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
