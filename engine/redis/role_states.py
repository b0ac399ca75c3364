"""The health of Redis, and the reports of each process on its roles.

The reports of a day are in one hash: a field per process and role, whose name shows no host. Report
times come from the clock of Redis, so that the clocks of two hosts are never compared.
"""

import asyncio
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

import msgspec
import structlog
from redis.asyncio import RedisCluster
from redis.exceptions import ResponseError

from api.reports import RoleReport
from catalog.database import within
from catalog.redis_connection import RedisClient
from engine.process.metrics import Metrics

log = structlog.get_logger(__name__)

_NEARLY_FULL = 0.9
_NO_EVICTION = "noeviction"
_FULL = "Redis is nearly full, and then no campaign fires: give it more memory"
_EVICTS = (
    "Redis evicts keys when it is full: claims get lost, and devices receive campaigns again; "
    "set maxmemory-policy noeviction"
)
_BLIND = "Redis does not answer INFO to this user: nothing can report that it is nearly full"


async def redis_time(redis: RedisClient) -> float:
    """Epoch seconds on the clock of Redis, or of one node of a cluster."""
    if isinstance(redis, RedisCluster):
        found = await redis.time(target_nodes=RedisCluster.RANDOM)
    else:
        found = await redis.time()
    seconds, microseconds = found
    return float(seconds) + float(microseconds) / 1_000_000


async def shared_time(redis: RedisClient) -> float:
    """The time that all processes compare with: that of Redis, or of this host if Redis tells none.

    (Some Redis services forbid TIME.)
    """
    try:
        return await redis_time(redis)
    except ResponseError:
        return time.time()


class RedisInspection:
    """Checks memory and eviction policy of every node; logs when a danger begins and ends.

    `deadline` is in seconds.
    """

    def __init__(self, *, redis: RedisClient, metrics: Metrics, deadline: float) -> None:
        self._redis = redis
        self._metrics = metrics
        self._deadline = deadline
        self._dangers = frozenset[str]()

    async def inspect(self) -> None:
        """Check once. Raises RedisError, OSError or TimeoutError if Redis does not answer."""
        dangers = set[str]()
        try:
            nodes = await within(self._deadline, self._info())
        except ResponseError:  # some Redis services forbid INFO
            dangers.add(_BLIND)
        else:
            ratio = max(map(_ratio, nodes), default=0.0)
            evicts = any(
                node.get("maxmemory_policy", _NO_EVICTION) != _NO_EVICTION for node in nodes
            )
            self._metrics.redis_memory.set(ratio)
            self._metrics.redis_evicts.set(evicts)
            dangers |= {_FULL} if ratio >= _NEARLY_FULL else set()
            dangers |= {_EVICTS} if evicts else set()
        for danger in sorted(dangers - self._dangers):
            log.warning(danger)
        for danger in sorted(self._dangers - dangers):
            log.info("no longer the case", warning=danger)
        self._dangers = frozenset(dangers)

    async def _info(self) -> list[Mapping[str, Any]]:
        if isinstance(self._redis, RedisCluster):
            target = RedisCluster.PRIMARIES
            found: Any = await self._redis.info("memory", target_nodes=target)
            # The answer of a single node is not wrapped; answers of several nodes are by name.
            return [found] if "used_memory" in found else list(found.values())
        return [await self._redis.info("memory")]


def _ratio(node: Mapping[str, Any]) -> float:
    most = int(node.get("maxmemory", 0))
    counted = int(node.get("used_memory", 0)) - int(node.get("mem_not_counted_for_evict", 0))
    return counted / most if most else 0.0


_DAY = 24 * 3600


class RoleLine(msgspec.Struct, frozen=True, array_like=True):
    """A process's report on one of its roles.

    `reported_at` is in epoch seconds. `behind` is the role's lag in seconds, None while unknown.
    `waits_for` names the checks of /readyz that fail.
    """

    role: str
    reported_at: float
    behind: float | None
    waits_for: list[str]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(RoleLine).decode


class RoleStateStore:
    """Writes and reads reports. Each call ends within `deadline` seconds.

    Each method raises RedisError, OSError or TimeoutError.
    """

    def __init__(self, *, redis: RedisClient, prefix: str, deadline: float) -> None:
        self._redis = redis
        self._prefix = prefix
        self._deadline = deadline

    async def write(
        self, instance: str, role: str, *, behind: float | None, waits_for: Collection[str]
    ) -> None:
        """Replace the process's report on the role. The report gets the present time."""
        async with asyncio.timeout(self._deadline):
            line = RoleLine(role, await shared_time(self._redis), behind, list(waits_for))
            key = self._key(line.reported_at)
            pipeline: Any = self._redis.pipeline(transaction=False)
            pipeline.hset(key, f"{role}:{instance}", _encode(line))
            pipeline.expire(key, 2 * _DAY)
            await pipeline.execute()

    async def read(self) -> list[RoleReport]:
        """The newest report of each process on each role, of today and yesterday (UTC)."""
        found: dict[bytes, bytes] = {}
        async with asyncio.timeout(self._deadline):
            now = await shared_time(self._redis)
            for at in (now - _DAY, now):
                of_day: Any = await self._redis.hgetall(self._key(at))
                found |= of_day
        reports = []
        for value in found.values():
            with suppress(msgspec.DecodeError):  # another version of the engine wrote it
                line = _decode(value)
                age = max(0.0, now - line.reported_at)
                reports.append(RoleReport(line.role, age, line.behind, tuple(line.waits_for)))
        return reports

    def _key(self, at: float) -> str:
        """The key of a day's reports: those of processes that ended are deleted with it."""
        return f"{self._prefix}roles:{int(at // _DAY)}"
