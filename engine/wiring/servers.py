"""Checks the servers of a process, for /readyz and in the background, and reports its roles."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from functools import partial

import structlog
from prometheus_client import Gauge
from redis.asyncio import RedisCluster
from redis.exceptions import RedisError
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from catalog.database import within
from engine.process.health import PROBE, Check, ServerProbe
from engine.process.metrics import Metrics
from engine.process.settings import Settings
from engine.redis.role_states import RedisInspection, RoleStateStore, redis_time
from engine.wiring.parts import Role, Stores

log = structlog.get_logger(__name__)

SKEW_SECONDS = 30.0  # by which clocks may differ without an error
_PROBE_INTERVAL = 5.0
_DEADLINE = 2.0
_PROBE_SECONDS = 60
_TAGS = 64  # the hash tags of the claims, which include those of the index

ReadClock = Callable[[], Awaitable[float]]


def server_checks(
    settings: Settings, stores: Stores, probe: ServerProbe, metrics: Metrics
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


class ClockSkew:
    """Compares this process's clock with those of servers; `read` has a reader of each, by name.

    If a trigger's clock is minutes off, every detection seems stale or from the future.

    Logs when a server's clock begins to differ by more than `limit` seconds, and when it ends.
    """

    def __init__(
        self,
        *,
        read: Mapping[str, ReadClock],
        limit: float,
        gauge: Gauge,
        deadline: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.limit = limit
        self._read = read
        self._gauge = gauge
        self._deadline = deadline
        self._clock = clock
        self._skews: dict[str, float] = {}
        self._reported: set[str] = set()

    def agreed(self) -> float:
        """The seconds by which this clock is ahead of all servers (below 0: behind all of them).

        The smallest difference counts. It is 0 if servers disagree or none has answered: one server
        with a wrong clock does not make this clock wrong.
        """
        skews = self._skews.values()
        if not skews or min(skews) < 0 < max(skews):
            return 0.0
        return min(skews, key=abs)

    def agrees_within(self, seconds: float) -> bool:
        """Whether this clock is not known to be wrong by more than these seconds."""
        return abs(self.agreed()) <= seconds

    async def measure(self, server: str) -> None:
        """Ask one server for its time. Raises the errors of its reader, and TimeoutError."""
        began, tick = self._clock(), time.monotonic()
        there = await within(self._deadline, self._read[server]())
        took = time.monotonic() - tick
        skew = began + took / 2 - there
        # The answer travelled for an unknown part of the request's time; only the rest is certain.
        certain = max(0.0, abs(skew) - took / 2)
        self._note(server, certain if skew > 0 else -certain)

    @property
    def servers(self) -> tuple[str, ...]:
        """The names of the servers."""
        return tuple(self._read)

    def _note(self, server: str, skew: float) -> None:
        self._skews[server] = skew
        self._gauge.labels(server).set(skew)
        large = abs(skew) > self.limit
        if large and server not in self._reported:
            self._reported.add(server)
            log.error(
                "this process's clock differs from a server's: detections are taken for too old "
                "or from the future; set the clocks by NTP",
                server=server,
                seconds_ahead=round(skew, 1),
            )
        elif not large and server in self._reported:
            self._reported.discard(server)
            log.warning("the clocks agree again", server=server, seconds_ahead=round(skew, 1))


def clock_skew(stores: Stores, metrics: Metrics) -> ClockSkew:
    """The comparison with the clocks of Redis and, unless it is SQLite, SQL."""

    async def sql_time() -> float:
        async with stores.database.autocommit() as session:
            query = text("SELECT EXTRACT(EPOCH FROM clock_timestamp())")
            return float(await session.scalar(query) or 0.0)

    read: dict[str, ReadClock] = {"redis": partial(redis_time, stores.redis)}
    if stores.database.dialect == "postgresql":  # SQLite has this host's clock
        read["sql"] = sql_time
    return ClockSkew(read=read, limit=SKEW_SECONDS, gauge=metrics.clock_skew, deadline=_DEADLINE)


class ServerWatch:
    """Runs every check each 5 s, and inspects Redis and the clocks each 10 s.

    The probes count and log failures. `failing` names the checks that failed the last time.
    """

    def __init__(
        self, *, probes: Mapping[str, Check], inspection: RedisInspection, clocks: ClockSkew
    ) -> None:
        self.failing: Collection[str] = ()
        self._probes = probes
        self._inspections: list[Callable[[], Awaitable[None]]] = [
            inspection.inspect,
            *(partial(clocks.measure, server) for server in clocks.servers),
        ]

    async def run(self) -> None:
        """Run until cancelled."""
        inspects = True
        while True:
            answers = await asyncio.gather(*(probe() for probe in self._probes.values()))
            probed = zip(self._probes, answers, strict=True)
            self.failing = [name for name, has_answered in probed if not has_answered]
            if inspects:
                await asyncio.gather(*map(_ignore_outage, self._inspections))
            inspects = not inspects
            await asyncio.sleep(_PROBE_INTERVAL)


async def _ignore_outage(inspect: Callable[[], Awaitable[None]]) -> None:
    # The probes log an outage. A server that forbids INFO or TIME is not inspected.
    with suppress(RedisError, SQLAlchemyError, OSError, TimeoutError):
        await inspect()


_PAUSE_SECONDS = 5.0


class RoleStateWriter:
    """Writes reports on `roles` while `run` runs. `failing` names failing server checks."""

    def __init__(
        self,
        *,
        store: RoleStateStore,
        roles: Collection[Role],
        failing: Callable[[], Collection[str]],
        metrics: Metrics,
        pause: float = _PAUSE_SECONDS,
    ) -> None:
        self._store = store
        self._roles = roles
        self._failing = failing
        self._errors = metrics.redis_errors
        self._pause = pause
        self._instance = secrets.token_hex(8)

    async def run(self) -> None:
        """Write until cancelled. While Redis is down nothing is written."""
        while True:
            try:
                for role in self._roles:
                    await self._store.write(
                        self._instance,
                        role.name,
                        behind=role.consumer.seconds_behind(time.time()),
                        waits_for=self._waits_for(role),
                    )
            except (RedisError, OSError, TimeoutError):
                self._errors.inc()
            await asyncio.sleep(self._pause)

    def _waits_for(self, role: Role) -> list[str]:
        needed = {"kafka", "redis", *role.needs}
        failing_checks = [name for name, holds in role.checks.items() if not holds()]
        return [*(name for name in self._failing() if name in needed), *failing_checks]
