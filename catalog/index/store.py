"""Writes the index to Redis. Each write names the marker that it expects in every bucket.

So a writer that is not the last one, or whose earlier writes Redis has lost, changes nothing. The
scripts are in `scripts.lua`. They are sent whole (EVAL), which works after a failover and in a
cluster's pipeline. Each of them may be sent twice.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

import msgspec
from redis.exceptions import ResponseError

from catalog.errors import IndexWriteError
from catalog.index.entries import (
    BUCKETS,
    MARKER_FIELD,
    REBUILT,
    IndexKeys,
    Marker,
    bucket,
    decode_marker,
    encode,
)
from catalog.redis_connection import RedisClient

_CHANGES_KEPT = 10_000
_ABANDONED_SECONDS = 3600
Markers = Sequence[Marker | None]


class IndexStore:
    """The index in one Redis. `deadline` (seconds) bounds each round trip.

    Raises RedisError, OSError or TimeoutError if Redis fails or does not answer.
    """

    def __init__(
        self, redis: RedisClient, *, prefix: str = "proximity:", deadline: float = 5.0
    ) -> None:
        self.keys = IndexKeys(prefix)
        self._redis = redis
        self._deadline = deadline
        self._scripts = _read_scripts()

    async def markers(self) -> list[Marker | None]:
        """The marker of each bucket; None where the bucket is not built."""
        pipeline = self._redis.pipeline(transaction=False)
        for number in range(BUCKETS):
            pipeline.hget(self.keys.bucket(number), MARKER_FIELD)
        return [None if raw is None else decode_marker(raw) for raw in await self._run(pipeline)]

    async def write(
        self,
        before: Marker | None,
        marker: Marker,
        puts: Mapping[str, bytes],
        removals: Iterable[str] = (),
    ) -> None:
        """Put and remove fields, then announce them to readers. Raises IndexWriteError.

        Every bucket must have the marker `before`, and has `marker` afterwards.
        """
        gone = list(removals)
        removed: list[list[str]] = [[] for _ in range(BUCKETS)]
        put: list[list[str | bytes]] = [[] for _ in range(BUCKETS)]
        for field in gone:
            removed[bucket(field)].append(field)
        for field, value in puts.items():
            put[bucket(field)] += (field, value)
        markers = [b"" if before is None else encode(before), encode(marker)]
        pipeline = self._redis.pipeline(transaction=False)
        for number in range(BUCKETS):
            arguments = [*markers, len(removed[number]), *removed[number], *put[number]]
            self._add(pipeline, "write", [self.keys.bucket(number)], arguments)
        await self._run(pipeline)
        await self._announce(marker, msgspec.json.encode([*puts, *gone]))

    async def fill(self, marker: Marker, puts: Mapping[str, bytes]) -> None:
        """Put fields into a rebuild, beside the index that readers use."""
        pipeline = self._redis.pipeline(transaction=False)
        for field, value in puts.items():
            key = self.keys.building(bucket(field), marker.writer)
            pipeline.hset(key, field, value)
            pipeline.expire(key, _ABANDONED_SECONDS)
        await self._run(pipeline)

    async def finish(self, before: Markers, marker: Marker, counts: Mapping[int, int]) -> None:
        """Replace the index with the rebuild, then announce it. Raises IndexWriteError.

        Each bucket must have its marker of `before`. `counts` is how many fields were put into
        each, because a Redis that was restored meanwhile may hold only some of them.
        """
        pipeline = self._redis.pipeline(transaction=False)
        for number, expected in enumerate(before):
            keys = [self.keys.bucket(number), self.keys.building(number, marker.writer)]
            found = b"" if expected is None else encode(expected)
            self._add(pipeline, "finish", keys, [found, encode(marker), counts.get(number, 0)])
        await self._run(pipeline)
        await self._announce(marker, REBUILT)

    async def _announce(self, marker: Marker, keys: str | bytes) -> None:
        pipeline = self._redis.pipeline(transaction=False)
        arguments = [_CHANGES_KEPT, marker.generation, keys]
        self._add(pipeline, "announce", [self.keys.changes], arguments)
        await self._run(pipeline)

    def _add(self, pipeline: Any, script: str, keys: list[str], arguments: list[Any]) -> None:
        pipeline.eval(self._scripts[script], len(keys), *keys, *arguments)

    async def _run(self, pipeline: Any) -> list[Any]:
        async with asyncio.timeout(self._deadline):
            replies: list[Any] = await pipeline.execute(raise_on_error=False)
        for reply in replies:
            if isinstance(reply, ResponseError) and str(reply).startswith("LOST"):
                raise IndexWriteError(str(reply))
            if isinstance(reply, Exception):
                raise reply
        return replies


def _read_scripts() -> dict[str, str]:
    text = files("catalog.index").joinpath("scripts.lua").read_text(encoding="utf-8")
    _, *parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))
