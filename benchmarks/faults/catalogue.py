"""The faults that are tried: of the broker, Redis, PostgreSQL, the network, a worker, and disks."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import cast

from benchmarks.faults.fault import Fault
from benchmarks.installation.running import PARTITIONS, Installation
from benchmarks.installation.servers import PostgresOnSmallDisk, RedisOnSmallDisk, SmallDisk
from tests.servers.process import ServerProcess

_DELAY = 0.15  # seconds each way: a request to a slow server takes twice as long

Check = Callable[[Installation], Awaitable[bool]]


def faults() -> list[Fault]:
    """The faults of an installation, in order."""
    found = [
        Fault(
            "broker stopped",
            partial(_stopped, "kafka"),
            _fails("trigger a", "kafka"),
            is_clean=False,
        ),
        Fault("Redis stopped", partial(_stopped, "redis"), _fails("trigger a", "redis")),
        Fault("Redis emptied", _emptied, seconds=0.0, heals_itself=True),
        Fault("Redis slow", partial(_slow, "redis")),
        Fault("PostgreSQL stopped", partial(_stopped, "postgres"), _fails("recorder a", "sql")),
        Fault("PostgreSQL slow", partial(_slow, "sql")),
        Fault("the connector's network cut", _cut, _calls_fail),
        Fault("a trigger killed", _killed, _taken_over, heals_itself=True, is_clean=False),
        Fault(
            "a trigger frozen past its session",
            _frozen,
            _taken_over,
            seconds=12.0,
            heals_itself=True,
            is_clean=False,
        ),
    ]
    if SmallDisk.can_be_created():
        found += [
            Fault("Redis' disk full", _redis_disk_full, _fails("trigger a", "redis_writes")),
            Fault("PostgreSQL's disk full", _postgres_disk_full, _sql_fails),
        ]
    return found


def failover(primary: ServerProcess) -> Fault:
    """Kill the primary behind Sentinel."""

    @asynccontextmanager
    async def killed(_installation: Installation) -> AsyncIterator[None]:
        await asyncio.to_thread(primary.kill)
        yield

    return Fault("Redis failed over", killed, _fails("trigger a", "redis"), heals_itself=True)


def _fails(process: str, check: str) -> Check:
    """Whether /readyz fails and names the check."""

    async def fails(installation: Installation) -> bool:
        return (await installation.processes[process].checks()).get(check) is False

    return fails


async def _calls_fail(installation: Installation) -> bool:
    """The company's breaker is open: no call is made in vain any more."""
    samples = await installation.processes["connector a"].get("/metrics")
    return any(
        line.startswith("proximity_connector_breakers")
        and 'state="open"' in line
        and float(line.rpartition(" ")[2]) > 0
        for line in samples[1].splitlines()
    )


async def _taken_over(installation: Installation) -> bool:
    """The other trigger has all partitions."""
    lines = installation.processes["trigger a"].output.splitlines()
    given = [line for line in lines if '"partitions assigned"' in line]
    return bool(given) and len(json.loads(given[-1])["partitions"]) == PARTITIONS


async def _sql_fails(installation: Installation) -> bool:
    samples = await installation.processes["recorder a"].metrics()
    return samples.total("sql_errors") > 0


@asynccontextmanager
async def _stopped(name: str, installation: Installation) -> AsyncIterator[None]:
    server = cast(ServerProcess, getattr(installation, name))
    await asyncio.to_thread(server.stop)
    try:
        yield
    finally:
        await asyncio.to_thread(server.start)


@asynccontextmanager
async def _emptied(installation: Installation) -> AsyncIterator[None]:
    await asyncio.to_thread(installation.redis.flush)
    yield


@asynccontextmanager
async def _slow(name: str, installation: Installation) -> AsyncIterator[None]:
    link = installation.links[name]
    link.delay = _DELAY
    try:
        yield
    finally:
        link.delay = 0.0


@asynccontextmanager
async def _cut(installation: Installation) -> AsyncIterator[None]:
    link = installation.links["partner"]
    await link.cut()
    try:
        yield
    finally:
        link.restore()


@asynccontextmanager
async def _killed(installation: Installation) -> AsyncIterator[None]:
    installation.processes.pop("trigger b").kill()
    yield
    installation.start("trigger b", "trigger")
    await installation.until_ready()


@asynccontextmanager
async def _frozen(installation: Installation) -> AsyncIterator[None]:
    trigger = installation.processes.pop("trigger b")
    trigger.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        trigger.process.send_signal(signal.SIGCONT)
        installation.processes["trigger b"] = trigger


@asynccontextmanager
async def _redis_disk_full(installation: Installation) -> AsyncIterator[None]:
    with cast(RedisOnSmallDisk, installation.redis).disk.full():
        yield


@asynccontextmanager
async def _postgres_disk_full(installation: Installation) -> AsyncIterator[None]:
    server = cast(PostgresOnSmallDisk, installation.postgres)
    with server.disk.full():
        yield
    if not server.running:  # without room for its log it stops itself
        await asyncio.to_thread(server.start)
