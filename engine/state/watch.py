"""Keeps the process's view of the index true: change messages, the marker, age, rebuilding."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec
import structlog

from catalog.index.entries import BUCKETS, MARKER_FIELD, REBUILT, IndexKeys
from catalog.redis_connection import RedisClient
from engine.failures import FIRST_BACKOFF, LAST_BACKOFF, describe, redis_may_recover
from engine.metrics import Metrics
from engine.state.index import BeaconIndex

log = structlog.get_logger(__name__)

_BLOCK_MS = 250  # also how soon a missing marker is noticed when no detection misses it first
_MOST_CHANGES = 1000

Rebuild = Callable[[], Awaitable[None]]


class IndexWatch:
    """One background task a process.

    `rebuild` fills the index from SQL when its marker is missing or names another catalog; it
    takes a lock, so that any number of processes may call it. It logs and returns when SQL does
    not answer: the watch asks again.
    """

    def __init__(
        self,
        *,
        redis: RedisClient,
        prefix: str,
        index: BeaconIndex,
        rebuild: Rebuild,
        max_age: float,
        deadline: float,
        metrics: Metrics,
    ) -> None:
        self._redis = redis
        self._keys = IndexKeys(prefix)
        self._index = index
        self._rebuild = rebuild
        self._max_age = max_age
        self._deadline = deadline
        self._errors = metrics.redis_errors

    async def run(self) -> None:
        """Watch until cancelled. Raises what neither time nor a rebuild can mend."""
        backoff = FIRST_BACKOFF
        await self._rebuild()
        while True:
            try:
                if await self._is_built():
                    backoff = FIRST_BACKOFF
                    await self._follow()
                self._index.built.clear()
                log.warning("the index is missing from Redis, rebuilding it from SQL")
                await self._rebuild()
            except Exception as error:  # sorted: tried again, or up to stop the process
                if not redis_may_recover(error):
                    raise
                self._errors.inc()
                log.warning("redis failed, trying again", what="changes", error=describe(error))
                await asyncio.sleep(backoff)
                backoff = min(backoff * 2, LAST_BACKOFF)

    async def _follow(self) -> None:
        """From the newest change on, until the index is missing. What came before is covered by
        dropping everything."""
        position = await self._newest()
        self._index.cache.drop_all()
        clock = asyncio.get_running_loop().time
        full_drop_at = clock() + self._max_age
        while await self._is_built():
            self._index.built.set()
            position = await self._apply_changes(position)
            if clock() >= full_drop_at:
                self._index.cache.drop_all()
                full_drop_at = clock() + self._max_age

    async def _newest(self) -> bytes | str:
        async with asyncio.timeout(self._deadline):
            newest: Any = await self._redis.xrevrange(self._keys.changes, count=1)
        position: bytes | str = newest[0][0] if newest else "0-0"
        return position

    async def _apply_changes(self, position: bytes | str) -> bytes | str:
        async with asyncio.timeout(self._deadline + _BLOCK_MS / 1000):
            streams: Any = await self._redis.xread(
                {self._keys.changes: position}, count=_MOST_CHANGES, block=_BLOCK_MS
            )
        for _, messages in _pairs(streams):
            self._apply(fields[b"keys"] for _, fields in messages)
            position = messages[-1][0]
        return position

    def _apply(self, changes: Iterable[bytes]) -> None:
        """One look at the cache, however many changes there are."""
        changed: set[str] = set()
        everything = False
        for keys in changes:
            if keys == REBUILT.encode():
                everything = True
            else:
                changed.update(msgspec.json.decode(keys, type=list[str]))
        if everything:
            self._index.cache.drop_all()
        else:
            self._index.cache.drop(changed)

    async def _is_built(self) -> bool:
        pipeline: Any = self._redis.pipeline(transaction=False)
        for number in range(BUCKETS):
            pipeline.hexists(self._keys.bucket(number), MARKER_FIELD)
        async with asyncio.timeout(self._deadline):
            markers = await pipeline.execute()
        return all(markers)


def _pairs(streams: Any) -> Any:
    """XREAD answers with a mapping under RESP3 and with pairs under RESP2."""
    return streams.items() if isinstance(streams, dict) else streams or ()
