"""Looks after the servers of a process, whether anybody asks or not: lines, metrics, clocks."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress

from redis.asyncio import RedisCluster
from redis.exceptions import RedisError
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from engine.process.clock_skew import ClockSkew, ReadClock
from engine.process.metrics import Metrics
from engine.process.readiness import Check
from engine.process.settings import Settings
from engine.redis.inspection import RedisInspection
from engine.wiring.stores import Stores

_ASK_SECONDS = 5.0
_LOOK_SECONDS = 10.0
_DEADLINE = 2.0


def clock_skew(settings: Settings, stores: Stores, metrics: Metrics) -> ClockSkew:
    """Against Redis and, where it runs on its own, SQL; nothing is asked yet."""

    async def redis_time() -> float:
        redis = stores.redis
        if isinstance(redis, RedisCluster):
            found = await redis.time(target_nodes=redis.get_random_node())
        else:
            found = await redis.time()
        seconds, microseconds = found
        return float(seconds) + float(microseconds) / 1_000_000

    async def sql_time() -> float:
        async with stores.database.autocommit() as session:
            query = text("SELECT EXTRACT(EPOCH FROM clock_timestamp())")
            return float(await session.scalar(query) or 0.0)

    read: dict[str, ReadClock] = {"redis": redis_time}
    if stores.database.dialect == "postgresql":  # SQLite has this host's clock
        read["sql"] = sql_time
    return ClockSkew(
        read=read, limit=settings.clock_skew_limit, gauge=metrics.clock_skew, deadline=_DEADLINE
    )


class ServerWatch:
    """Asks every question each 5 s, and looks at Redis and the clocks each 10 s.

    What fails is counted and said by the questions; here nothing is tried again but by time.
    """

    def __init__(
        self,
        *,
        questions: Collection[Check],
        inspection: RedisInspection,
        clocks: ClockSkew,
    ) -> None:
        self._questions = questions
        self._inspection = inspection
        self._clocks = clocks

    async def run(self) -> None:
        """Until cancelled."""
        await asyncio.gather(
            _every(_ASK_SECONDS, self._ask),
            _every(_LOOK_SECONDS, self._look),
        )

    async def _ask(self) -> None:
        await asyncio.gather(*(question() for question in self._questions))

    async def _look(self) -> None:
        looks = [self._inspection.look, *map(self._measure, self._clocks.servers)]
        await asyncio.gather(*(_unless_away(look) for look in looks))

    def _measure(self, server: str) -> Callable[[], Awaitable[None]]:
        return lambda: self._clocks.measure(server)


async def _every(seconds: float, work: Callable[[], Awaitable[None]]) -> None:
    while True:
        await work()
        await asyncio.sleep(seconds)


async def _unless_away(look: Callable[[], Awaitable[None]]) -> None:
    # A server that is away, or forbids the question, is the business of the questions.
    with suppress(RedisError, SQLAlchemyError, OSError, TimeoutError):
        await look()
