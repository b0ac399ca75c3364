"""The health of Redis, and the reports of each process on its roles.

The reports of a day are in one hash: a field per process and role, whose name shows no host. Report
times come from the clock of Redis, so that the clocks of two hosts are never compared.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog
from redis.asyncio import RedisCluster

from api.reports import RoleReport
from engine.process.metrics import Metrics
from engine.redis.store import RedisStore, readable, shared_time

log = structlog.get_logger(__name__)

_NEARLY_FULL = 0.9
_NO_EVICTION = "noeviction"
_FULL = "Redis is nearly full, and then no campaign fires: give it more memory"
_EVICTS = (
    "Redis evicts keys when it is full: claims get lost, and devices receive campaigns again; "
    "set maxmemory-policy noeviction"
)


@dataclass(kw_only=True, eq=False)
class RedisInspection(RedisStore):
    """Checks memory and eviction policy of every node; logs when a danger begins."""

    metrics: Metrics
    _dangers = frozenset[str]()

    async def inspect(self) -> None:
        nodes = await self._answer(self._info())
        ratio = max(map(_ratio, nodes), default=0.0)
        evicts = any(node.get("maxmemory_policy", _NO_EVICTION) != _NO_EVICTION for node in nodes)
        self.metrics.redis_memory.set(ratio)
        self.metrics.redis_evicts.set(evicts)
        dangers = {_FULL} if ratio >= _NEARLY_FULL else set()
        dangers |= {_EVICTS} if evicts else set()
        for danger in sorted(dangers - self._dangers):
            log.warning(danger)
        self._dangers = frozenset(dangers)

    async def _info(self) -> list[Mapping[str, Any]]:
        if isinstance(self.redis, RedisCluster):
            target = RedisCluster.PRIMARIES
            found: Any = await self.redis.info("memory", target_nodes=target)
            # The answer of a single node is not wrapped; answers of several nodes are by name.
            return [found] if "used_memory" in found else list(found.values())
        return [await self.redis.info("memory")]


def _ratio(node: Mapping[str, Any]) -> float:
    most = int(node.get("maxmemory", 0))
    counted = int(node.get("used_memory", 0)) - int(node.get("mem_not_counted_for_evict", 0))
    return counted / most if most else 0.0


_DAY = 24 * 3600


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(RoleReport).decode  # with the time (epoch s) in place of the age


class RoleStateStore(RedisStore):
    async def write(
        self, instance: str, role: str, *, behind: float | None, waits_for: Collection[str]
    ) -> None:
        """Replace the process's report on the role. The report gets the present time."""
        now = await self._answer(shared_time(self.redis))
        key, pipeline = self._key(now), self._pipeline()
        report = RoleReport(role, now, behind, tuple(waits_for))
        pipeline.hset(key, f"{role}:{instance}", _encode(report))
        pipeline.expire(key, 2 * _DAY)
        await self._answer(pipeline.execute())

    async def read(self) -> list[RoleReport]:
        """The newest report of each process on each role, of today and yesterday (UTC)."""
        now, found = await self._answer(shared_time(self.redis)), dict[bytes, bytes]()
        for at in (now - _DAY, now):
            found |= await self._answer(self.redis.hgetall(self._key(at)))
        reports = readable(found.values(), _decode)
        return [each._replace(age=max(0.0, now - each.age)) for each in reports]

    def _key(self, at: float) -> str:
        """The key of a day's reports: those of processes that ended are deleted with it."""
        return f"{self.prefix}roles:{int(at // _DAY)}"
