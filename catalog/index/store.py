"""Writes the index to Redis. Generations fence it: a stale writer cannot change anything.

The scripts are in `scripts.lua`. They are sent whole (EVAL), which works after a failover and in a
cluster's pipeline. Each of them may be sent twice.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

import msgspec
from redis.exceptions import ResponseError

from catalog.errors import IndexBehindError, IndexMissingError, StaleWriterError
from catalog.index.entries import (
    BUCKETS,
    MARKER_FIELD,
    NOTHING_WRITTEN,
    REBUILT,
    IndexKeys,
    Marker,
    WritePosition,
    bucket,
    decode_marker,
    encode,
)
from catalog.redis_connection import RedisClient

_CHANGES_KEPT = 10_000
_ABANDONED_SECONDS = 3600
_SCRIPT_ERRORS = {
    "STALE": StaleWriterError,
    "MISSING": IndexMissingError,
    "LAGGING": IndexBehindError,
}


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
        marker: Marker,
        puts: Mapping[str, bytes],
        removals: Iterable[str] = (),
        *,
        positions: Sequence[WritePosition] = (NOTHING_WRITTEN,) * BUCKETS,
    ) -> set[int]:
        """Put and remove fields, then announce them to readers. Returns the buckets written.

        `positions` is the last write that each bucket must have: a write after a lost one would
        hide the loss. Raises IndexMissingError, IndexBehindError, StaleWriterError.
        """
        removed = list(removals)
        by_bucket: dict[int, tuple[list[str | bytes], list[str]]] = {}
        for field, value in puts.items():
            by_bucket.setdefault(bucket(field), ([], []))[0].extend((field, value))
        for field in removed:
            by_bucket.setdefault(bucket(field), ([], []))[1].append(field)
        mark = encode(marker)
        calls = [
            (
                [self.keys.bucket(number)],
                [mark, *positions[number], len(pairs) // 2, *pairs, *removed],
            )
            for number, (pairs, removed) in by_bucket.items()
        ]
        if calls:
            await self._call("write", calls)
            await self._announce(marker, msgspec.json.encode([*puts, *removed]))
        return set(by_bucket)

    async def begin(self, marker: Marker) -> None:
        """Begin a rebuild beside the index that readers use. Raises StaleWriterError."""
        arguments = [marker.generation, encode(marker), _ABANDONED_SECONDS]
        await self._call("begin", [(self._both(number), arguments) for number in range(BUCKETS)])

    async def fill(self, marker: Marker, puts: Mapping[str, bytes]) -> None:
        """Put fields into the rebuild. Raises IndexMissingError, StaleWriterError."""
        by_bucket: dict[int, list[str | bytes]] = {}
        for field, value in puts.items():
            by_bucket.setdefault(bucket(field), []).extend((field, value))
        head = [encode(marker), _ABANDONED_SECONDS]
        calls = [([self.keys.building(n)], [*head, *pairs]) for n, pairs in by_bucket.items()]
        await self._call("fill", calls)

    async def finish(self, marker: Marker, counts: Mapping[int, int]) -> None:
        """Replace the index with the rebuild, then announce it to readers.

        `counts` is how many fields were put into each bucket, because a Redis that was restored
        meanwhile may hold only some of them. Raises IndexMissingError, StaleWriterError.
        """
        head = [marker.generation, encode(marker)]
        calls = [(self._both(n), [*head, counts.get(n, 0)]) for n in range(BUCKETS)]
        await self._call("finish", calls)
        await self._announce(marker, REBUILT)

    def _both(self, number: int) -> list[str]:
        return [self.keys.bucket(number), self.keys.building(number)]

    async def _announce(self, marker: Marker, keys: str | bytes) -> None:
        arguments = [_CHANGES_KEPT, *marker.position, keys]
        await self._call("announce", [([self.keys.changes], arguments)])

    async def _call(self, script: str, calls: Sequence[tuple[list[str], list[Any]]]) -> None:
        """Call a script once for each (keys, arguments), in one round trip."""
        pipeline = self._redis.pipeline(transaction=False)
        for keys, arguments in calls:
            pipeline.eval(self._scripts[script], len(keys), *keys, *arguments)
        await self._run(pipeline)

    async def _run(self, pipeline: Any) -> list[Any]:
        async with asyncio.timeout(self._deadline):
            replies: list[Any] = await pipeline.execute(raise_on_error=False)
        errors = [reply for reply in replies if isinstance(reply, Exception)]
        if errors:  # STALE first: it is final, and the others may not be
            raise _index_error(min(errors, key=lambda error: not str(error).startswith("STALE")))
        return replies


def _read_scripts() -> dict[str, str]:
    text = files("catalog.index").joinpath("scripts.lua").read_text(encoding="utf-8")
    _, *parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _index_error(error: Exception) -> Exception:
    """The catalog's error for an error reply of a script; any other error as it is."""
    text = str(error)
    for code, kind in _SCRIPT_ERRORS.items():
        if isinstance(error, ResponseError) and text.startswith(code):
            return kind(text)
    return error
