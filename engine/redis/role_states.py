"""Stores the states of the processes' roles in one hash of Redis, for account holders.

There is one field per process and role, whose name does not show the host. Times are on the clock
of Redis, so that clocks of hosts are not compared.
"""

import asyncio
import time
from collections.abc import Collection
from typing import Any

import msgspec
from redis.exceptions import ResponseError

from api.records.role import RoleReport
from catalog.redis_connection import RedisClient
from engine.redis.inspection import redis_time

_KEPT_MS = 24 * 3600 * 1000
_FORGOTTEN_SECONDS = 600.0  # after it only the newest report of a role is kept


class RoleLine(msgspec.Struct, frozen=True, array_like=True):
    """A process's report on one of its roles. `reported_at` in epoch seconds."""

    role: str
    reported_at: float
    behind: float | None
    waits_for: list[str]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(RoleLine).decode


class RoleStateStore:
    """Writes and reads reports. `deadline` bounds each call, in seconds.

    Raises RedisError, OSError or TimeoutError.
    """

    def __init__(self, *, redis: RedisClient, prefix: str, deadline: float) -> None:
        self._redis = redis
        self._key = f"{prefix}roles"
        self._deadline = deadline

    async def write(
        self, instance: str, role: str, *, behind: float | None, waits_for: Collection[str]
    ) -> None:
        """Write a report with the present time."""
        async with asyncio.timeout(self._deadline):
            line = RoleLine(role, await self._now(), behind, list(waits_for))
            pipeline: Any = self._redis.pipeline(transaction=False)
            pipeline.hset(self._key, f"{role}:{instance}", _encode(line))
            pipeline.pexpire(self._key, _KEPT_MS)
            await pipeline.execute()

    async def read(self) -> list[RoleReport]:
        """The last report of each process and role, of the last day or so."""
        async with asyncio.timeout(self._deadline):
            lines, now = await self._lines()
        return [
            RoleReport(
                line.role, max(0.0, now - line.reported_at), line.behind, tuple(line.waits_for)
            )
            for line in lines.values()
        ]

    async def forget_old(self) -> None:
        """Remove the reports of ended processes, except for the newest report of each role."""
        async with asyncio.timeout(self._deadline):
            lines, now = await self._lines()
            newest = {line.role: name for name, line in _oldest_first(lines)}
            old = [
                name
                for name, line in lines.items()
                if now - line.reported_at > _FORGOTTEN_SECONDS and newest[line.role] != name
            ]
            if old:
                await self._redis.hdel(self._key, *old)

    async def _lines(self) -> tuple[dict[bytes, RoleLine], float]:
        found: Any = await self._redis.hgetall(self._key)
        lines = {}
        for name, value in found.items():
            try:
                lines[name] = _decode(value)
            except msgspec.DecodeError:  # another version of the engine wrote it
                continue
        return lines, await self._now()

    async def _now(self) -> float:
        try:
            return await redis_time(self._redis)
        except ResponseError:  # TIME is forbidden, as it is at some hosts
            return time.time()


def _oldest_first(lines: dict[bytes, RoleLine]) -> list[tuple[bytes, RoleLine]]:
    return sorted(lines.items(), key=lambda each: each[1].reported_at)
