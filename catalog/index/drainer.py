"""The background task that keeps the index up to date, for as long as its process lives."""

import asyncio
import random
from collections.abc import Callable

import structlog
from asyncpg import InterfaceError, PostgresError
from redis.exceptions import RedisError
from sqlalchemy.exc import SQLAlchemyError

from catalog.database import Database
from catalog.failures import database_may_recover
from catalog.index.drain import Outcome, drain_once, rebuild_if_missing
from catalog.index.standing import LagShown
from catalog.index.sweep import sweep
from catalog.index.writer import IndexMissingError, IndexStore, StaleTurnError

_log = structlog.get_logger(__name__)

# What SQL or Redis do when they are away, and what the index does when someone else is at it.
OUTAGES = (
    SQLAlchemyError,
    PostgresError,
    InterfaceError,
    RedisError,
    OSError,
    TimeoutError,
    IndexMissingError,
    StaleTurnError,
)


_SWEEP_SECONDS = 60.0


class Drainer:
    """Drains the outbox every `poll` seconds; every `look` seconds compares the index with SQL.

    An outage of SQL or Redis is logged once and tried again, after a pause that doubles up to
    `longest_pause`; any other error is a mistake in the program and ends `run`. `jitter` spreads
    pauses: a factor near 1. `failures` counts those in a row: 0 while all is well. `nudge` ends a
    pause at once, for who has just written; not one after a failure. `on_lag` is told by how many
    generations Redis is behind.
    """

    def __init__(
        self,
        *,
        database: Database,
        store: IndexStore,
        poll: float = 0.25,
        look: float = 1.0,
        longest_pause: float = 10.0,
        clock: Callable[[], float],
        jitter: Callable[[], float] = lambda: random.uniform(0.8, 1.2),  # noqa: S311
        on_lag: LagShown = lambda _: None,
    ) -> None:
        self._database = database
        self._store = store
        self._poll = poll
        self._look = look
        self._longest_pause = longest_pause
        self._clock = clock
        self._jitter = jitter
        self._on_lag = on_lag
        self.failures = 0
        self._looked: float | None = None
        self._swept: float | None = None
        self._nudged = asyncio.Event()

    def nudge(self) -> None:
        """Say that the outbox has something."""
        self._nudged.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set. May also be cancelled: what was not committed is drained again."""
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
        return 0.0 if outcome is Outcome.DRAINED else self._poll * self._jitter()

    async def _work(self) -> Outcome:
        now = self._clock()
        if self._looked is None or now - self._looked >= self._look:
            await rebuild_if_missing(self._database, self._store, on_lag=self._on_lag)
            self._looked = now
        if self._swept is None or now - self._swept >= _SWEEP_SECONDS:
            await sweep(self._database)
            self._swept = now
        return await drain_once(self._database, self._store, on_lag=self._on_lag)

    def _failed(self, error: Exception) -> float:
        # The index may have gone with it.
        self._looked = None
        self.failures += 1
        pause = min(self._poll * 2.0 ** min(self.failures, 16), self._longest_pause)
        if self.failures == 1:  # the rest of the outage is told when it is over
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
