"""Stores the breakers of customers' services in Redis, where all processes share them."""

import asyncio
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from redis.asyncio import Redis, RedisCluster

from connectors.breaker import FORGET_SECONDS, BreakerPolicy, BreakerReport, BreakerState

_SCRIPT = files("engine.connector").joinpath("scripts/breaker.lua").read_text(encoding="utf-8")
_TAGS = 16  # slots over which a cluster spreads companies


class RedisBreakers:
    """A BreakerStore in Redis: one script call, or one for each slot of a cluster.

    `deadline` in seconds. Raises RedisError or TimeoutError.
    """

    def __init__(
        self, *, redis: Redis | RedisCluster, prefix: str, policy: BreakerPolicy, deadline: float
    ) -> None:
        self._prefix = prefix
        self._policy = policy
        self._deadline = deadline
        self._clustered = isinstance(redis, RedisCluster)
        self._script = redis.register_script(_SCRIPT)

    async def exchange(
        self, reports: Sequence[BreakerReport], *, prober: str, now: float
    ) -> list[BreakerState]:
        """As BreakerStore says."""
        by_tag: dict[int, list[int]] = {}
        for position, report in enumerate(reports):
            tag = report.company_id % _TAGS if self._clustered else 0
            by_tag.setdefault(tag, []).append(position)
        states: dict[int, BreakerState] = {}
        async with asyncio.timeout(self._deadline):
            for positions in by_tag.values():
                answers = await self._call([reports[i] for i in positions], prober, now)
                states.update(zip(positions, answers, strict=True))
        return [states[position] for position in range(len(reports))]

    async def _call(
        self, reports: Sequence[BreakerReport], prober: str, now: float
    ) -> list[BreakerState]:
        policy = self._policy
        replies: Any = await self._script(
            keys=[breaker_key(self._prefix, report.company_id) for report in reports],
            args=[
                round(now * 1000),
                policy.window,
                policy.failures,
                round(policy.pause * 1000),
                round(policy.lease * 1000),
                round(FORGET_SECONDS * 1000),
                prober,
                *(part for report in reports for part in _arguments(report)),
            ],
        )
        threes = zip(replies[::3], replies[1::3], replies[2::3], strict=True)
        return [
            BreakerState(is_open=bool(is_open), is_prober=bool(is_prober), wait=wait / 1000)
            for is_open, is_prober, wait in threes
        ]


def breaker_key(prefix: str, company_id: int) -> str:
    """The key of the hash that scripts/breaker.lua reads and writes."""
    return f"{prefix}breaker:{{{company_id % _TAGS}}}:{company_id}"


def _arguments(report: BreakerReport) -> tuple[str, str]:
    outcomes = "".join("1" if failed else "0" for failed in report.outcomes)
    return report.purpose.value, outcomes
