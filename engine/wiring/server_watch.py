"""Checks the servers of a process: on request for /readyz, and in the background."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from functools import partial

from redis.asyncio import RedisCluster
from redis.exceptions import RedisError
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from engine.kafka.broker_probe import BrokerProbe
from engine.process.clock_skew import ClockSkew, ReadClock
from engine.process.health import PROBE, Check, ServerProbe
from engine.process.metrics import Metrics
from engine.process.settings import Settings
from engine.redis.inspection import RedisInspection, redis_time
from engine.wiring.stores import Stores

_PROBE_INTERVAL = 5.0
_INSPECTION_INTERVAL = 10.0
_DEADLINE = 2.0
_PROBE_SECONDS = 60
_TAGS = 64  # the hash tags of the claims, which include those of the index


def server_checks(
    settings: Settings, stores: Stores, probe: BrokerProbe, metrics: Metrics
) -> Mapping[str, Check]:
    """The checks by the names that /readyz shows: kafka, redis, redis_writes and sql."""

    async def write_to_redis() -> None:
        # Each node that holds claims, because a single node may be full, or a replica by now.
        tags = range(_TAGS) if isinstance(stores.redis, RedisCluster) else range(1)
        pipeline = stores.redis.pipeline(transaction=False)
        for tag in tags:
            pipeline.set(f"{settings.redis_prefix}probe:{{{tag}}}", b"", ex=_PROBE_SECONDS)
        await pipeline.execute()

    redis = ServerProbe(stores.redis_answers, operation=PROBE, errors=metrics.redis_errors)
    writes = ServerProbe(write_to_redis, operation="write", errors=metrics.redis_errors)
    return {
        "kafka": probe.answers,
        "redis": redis.answers,
        "redis_writes": writes.answers,
        "sql": sql_probe(stores, metrics).answers,
    }


def sql_probe(stores: Stores, metrics: Metrics) -> ServerProbe:
    """Whether SQL answers."""

    async def query_sql() -> None:
        async with stores.database.autocommit() as session:
            await session.execute(text("SELECT 1"))

    return ServerProbe(query_sql, operation=PROBE, errors=metrics.sql_errors)


def clock_skew(settings: Settings, stores: Stores, metrics: Metrics) -> ClockSkew:
    """The comparison with the clocks of Redis and, unless it is SQLite, SQL."""

    async def sql_time() -> float:
        async with stores.database.autocommit() as session:
            query = text("SELECT EXTRACT(EPOCH FROM clock_timestamp())")
            return float(await session.scalar(query) or 0.0)

    read: dict[str, ReadClock] = {"redis": partial(redis_time, stores.redis)}
    if stores.database.dialect == "postgresql":  # SQLite has this host's clock
        read["sql"] = sql_time
    return ClockSkew(
        read=read, limit=settings.clock_skew_limit, gauge=metrics.clock_skew, deadline=_DEADLINE
    )


class ServerWatch:
    """Runs every check each 5 s, and inspects Redis and the clocks each 10 s.

    The probes count and log failures. `failing` names the checks that failed the last time.
    """

    def __init__(
        self,
        *,
        probes: Mapping[str, Check],
        inspection: RedisInspection,
        clocks: ClockSkew,
    ) -> None:
        self.failing: Collection[str] = ()
        self._probes = probes
        self._inspection = inspection
        self._clocks = clocks

    async def run(self) -> None:
        """Run until cancelled."""
        await asyncio.gather(
            _every(_PROBE_INTERVAL, self._run_probes),
            _every(_INSPECTION_INTERVAL, self._inspect),
        )

    async def _run_probes(self) -> None:
        answers = await asyncio.gather(*(probe() for probe in self._probes.values()))
        probed = zip(self._probes, answers, strict=True)
        self.failing = [name for name, has_answered in probed if not has_answered]

    async def _inspect(self) -> None:
        inspections = [self._inspection.inspect, *map(self._measure, self._clocks.servers)]
        await asyncio.gather(*(_ignore_outage(inspect) for inspect in inspections))

    def _measure(self, server: str) -> Callable[[], Awaitable[None]]:
        return lambda: self._clocks.measure(server)


async def _every(seconds: float, work: Callable[[], Awaitable[None]]) -> None:
    while True:
        await work()
        await asyncio.sleep(seconds)


async def _ignore_outage(inspect: Callable[[], Awaitable[None]]) -> None:
    # The probes log an outage. A server that forbids INFO or TIME is not inspected.
    with suppress(RedisError, SQLAlchemyError, OSError, TimeoutError):
        await inspect()
