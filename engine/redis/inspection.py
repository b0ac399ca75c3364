"""Checks how Redis is configured and how full it is, and warns early."""

from collections.abc import Iterable, Mapping
from typing import Any

import structlog
from redis.asyncio import RedisCluster
from redis.exceptions import ResponseError

from catalog.deadline import within
from catalog.redis_connection import RedisClient
from engine.process.metrics import Metrics

log = structlog.get_logger(__name__)

_NEARLY_FULL = 0.9
_NO_EVICTION = "noeviction"


async def redis_time(redis: RedisClient) -> float:
    """Epoch seconds on the clock of Redis, or of one node of a cluster."""
    if isinstance(redis, RedisCluster):
        found = await redis.time(target_nodes=RedisCluster.RANDOM)
    else:
        found = await redis.time()
    seconds, microseconds = found
    return float(seconds) + float(microseconds) / 1_000_000


class RedisInspection:
    """Checks memory and eviction policy of every node; logs when a danger begins and ends.

    If INFO is forbidden, as it is at some hosts, that is logged once. `deadline` is in seconds.
    """

    def __init__(self, *, redis: RedisClient, metrics: Metrics, deadline: float) -> None:
        self._redis = redis
        self._metrics = metrics
        self._deadline = deadline
        self._policies: frozenset[str] = frozenset()
        self._nearly_full = False
        self._is_blind = False

    async def inspect(self) -> None:
        """Check once. Raises RedisError, OSError or TimeoutError if Redis does not answer."""
        try:
            nodes = await within(self._deadline, self._info())
        except ResponseError as error:  # not allowed, or not known here
            if not self._is_blind:
                log.warning(
                    "Redis does not answer INFO to this user: it cannot be reported that Redis is "
                    "nearly full or evicts keys",
                    error=str(error),
                )
            self._is_blind = True
            return
        self._is_blind = False
        self._note_policies(nodes)
        self._note_memory(nodes)

    async def _info(self) -> list[Mapping[str, Any]]:
        if isinstance(self._redis, RedisCluster):
            target = RedisCluster.PRIMARIES
            found: Any = await self._redis.info("memory", target_nodes=target)
            # The answer of a single node is not wrapped; answers of several nodes are by name.
            return [found] if "used_memory" in found else list(found.values())
        return [await self._redis.info("memory")]

    def _note_policies(self, nodes: Iterable[Mapping[str, Any]]) -> None:
        named = {str(node["maxmemory_policy"]) for node in nodes if "maxmemory_policy" in node}
        policies = frozenset(named - {_NO_EVICTION})
        self._metrics.redis_evicts.set(bool(policies))
        if policies and policies != self._policies:
            log.warning(
                "Redis evicts keys when it is full: claims get lost, and devices receive "
                "campaigns again; set maxmemory-policy noeviction",
                policy=", ".join(sorted(policies)),
            )
        elif self._policies and not policies:
            log.info("Redis evicts no keys any more", policy=_NO_EVICTION)
        self._policies = policies

    def _note_memory(self, nodes: Iterable[Mapping[str, Any]]) -> None:
        ratio = max(map(_ratio, nodes), default=0.0)
        self._metrics.redis_memory.set(ratio)
        if ratio >= _NEARLY_FULL and not self._nearly_full:
            log.error(
                "Redis is nearly full, and then no campaign fires: give it more memory",
                used=round(ratio, 2),
            )
        elif ratio < _NEARLY_FULL and self._nearly_full:
            log.info("Redis has room again", used=round(ratio, 2))
        self._nearly_full = ratio >= _NEARLY_FULL


def _ratio(node: Mapping[str, Any]) -> float:
    most = int(node.get("maxmemory", 0))
    counted = int(node.get("used_memory", 0)) - int(node.get("mem_not_counted_for_evict", 0))
    return counted / most if most else 0.0
