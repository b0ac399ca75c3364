"""What the stores in Redis have in common, and the time that all processes share."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from redis.asyncio import RedisCluster
from redis.exceptions import ResponseError

from catalog.redis_connection import RedisClient

Value = TypeVar("Value")


@dataclass(kw_only=True, eq=False)
class RedisStore:
    """Data whose keys begin with `prefix`. Each call ends within `deadline` seconds.

    Its methods raise RedisError, OSError or TimeoutError.
    """

    redis: RedisClient
    prefix: str
    deadline: float

    def _pipeline(self) -> Any:
        """Commands that are sent together, and are no transaction."""
        return self.redis.pipeline(transaction=False)

    async def _read_stream(
        self, key: str, after: str, most: int, block_ms: int
    ) -> list[tuple[bytes, dict[bytes, bytes]]]:
        """The messages of a stream after a position. Waits up to `block_ms` for the first one."""
        async with asyncio.timeout(self.deadline + block_ms / 1000):
            streams: Any = await self.redis.xread({key: after}, count=most, block=block_ms)
        # XREAD answers with a mapping under RESP3 and with pairs under RESP2.
        by_stream = streams.items() if isinstance(streams, dict) else streams or ()
        return [message for _, of_stream in by_stream for message in of_stream]

    async def _answer(self, call: Awaitable[Any]) -> Any:
        async with asyncio.timeout(self.deadline):
            return await call


def readable(values: Iterable[bytes], decode: Callable[[bytes], Value]) -> list[Value]:
    """The decoded values, without those that another version of the engine wrote."""
    found = []
    for each in values:
        with suppress(msgspec.DecodeError):
            found.append(decode(each))
    return found


async def write_often(write: Callable[[], Awaitable[None]], seconds: float) -> None:
    """Call `write` every few seconds until cancelled, and then once more."""
    try:
        while True:
            await asyncio.sleep(seconds)
            await write()
    finally:
        await write()


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
