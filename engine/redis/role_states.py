"""Stores each process's reports on its roles in one hash of Redis. The interface shows account
holders the state of each role.

The hash has one field per process and role. The field's name does not show the host. Report times
come from the clock of Redis, so that the clocks of two hosts are never compared.
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
_STALE_SECONDS = 600.0  # an older report is removed, unless it is the newest of its role


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
    """Writes, reads and removes reports. Each call ends within `deadline` seconds.

    Each method raises RedisError, OSError or TimeoutError.
    """

    def __init__(self, *, redis: RedisClient, prefix: str, deadline: float) -> None:
        self._redis = redis
        self._key = f"{prefix}roles"
        self._deadline = deadline

    async def write(
        self, instance: str, role: str, *, behind: float | None, waits_for: Collection[str]
    ) -> None:
        """Replace the process's report on the role. The report gets the present time."""
        async with asyncio.timeout(self._deadline):
            line = RoleLine(role, await self._now(), behind, list(waits_for))
            pipeline: Any = self._redis.pipeline(transaction=False)
            pipeline.hset(self._key, f"{role}:{instance}", _encode(line))
            pipeline.pexpire(self._key, _KEPT_MS)
            await pipeline.execute()

    async def read(self) -> list[RoleReport]:
        """The newest report of each process on each role. If no process reports for a day, Redis
        deletes all reports."""
        async with asyncio.timeout(self._deadline):
            lines, now = await self._lines()
        return [
            RoleReport(
                line.role, max(0.0, now - line.reported_at), line.behind, tuple(line.waits_for)
            )
            for line in lines.values()
        ]

    async def forget_old(self) -> None:
        """Remove reports that are older than ten minutes, whose processes have ended. The newest
        report of each role stays, and tells for how long the role has been silent."""
        async with asyncio.timeout(self._deadline):
            lines, now = await self._lines()
            newest = {line.role: name for name, line in _oldest_first(lines)}
            old = [
                name
                for name, line in lines.items()
                if now - line.reported_at > _STALE_SECONDS and newest[line.role] != name
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
        except ResponseError:  # some Redis services forbid TIME
            return time.time()


def _oldest_first(lines: dict[bytes, RoleLine]) -> list[tuple[bytes, RoleLine]]:
    return sorted(lines.items(), key=lambda each: each[1].reported_at)
