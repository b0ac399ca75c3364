"""Writes the index to Redis, fenced: a writer whose turn is over cannot change anything.

The scripts are in `scripts/`. They are sent whole (EVAL), which works after a fail-over and in a
cluster's pipeline; all of them may be sent twice.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

import msgspec
from redis.exceptions import ResponseError

from catalog.index.entries import (
    BUCKETS,
    MARKER_FIELD,
    REBUILT,
    IndexKeys,
    Marker,
    WritePlace,
    bucket,
    decode_marker,
    encode,
)
from catalog.redis_connection import RedisClient

_CHANGES_KEPT = 10_000
_ABANDONED_SECONDS = 3600
_NOWHERE = WritePlace(0, 0)


class IndexMissingError(Exception):
    """The index, or the rebuild under way, is gone from Redis, or is of another catalog."""


class IndexLagsError(IndexMissingError):
    """A bucket lacks writes that SQL knows of: Redis was restored from an older copy."""


class StaleTurnError(Exception):
    """A later writer has had its turn; this one must give up."""


def _script(name: str) -> str:
    return files("catalog.index").joinpath(f"scripts/{name}.lua").read_text(encoding="utf-8")


class IndexStore:
    """The index in one Redis. `deadline` (seconds) bounds each round trip.

    Raises RedisError, OSError or TimeoutError when Redis does not do what it should.
    """

    def __init__(
        self, redis: RedisClient, *, prefix: str = "proximity:", deadline: float = 5.0
    ) -> None:
        self.keys = IndexKeys(prefix)
        self._redis = redis
        self._deadline = deadline
        self._write = _script("write")
        self._begin = _script("begin")
        self._fill = _script("fill")
        self._finish = _script("finish")
        self._tell = _script("announce")

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
        places: Sequence[WritePlace] = (_NOWHERE,) * BUCKETS,
    ) -> set[int]:
        """Put and remove fields, then tell every reader; the buckets that were written.

        `places` is what the buckets must hold already: a write on top of one that Redis has lost
        would hide the loss. Raises IndexMissingError, IndexLagsError, StaleTurnError.
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
                self._write,
                [self.keys.bucket(number)],
                [mark, *places[number], len(pairs) // 2, *pairs, *gone],
            )
            for number, (pairs, gone) in by_bucket.items()
        ]
        if calls:
            await self._call(calls)
            await self._announce(marker, msgspec.json.encode([*puts, *removed]))
        return set(by_bucket)

    async def begin(self, marker: Marker) -> None:
        """Begin a rebuild beside the index that is read. Raises StaleTurnError."""
        arguments = [marker.generation, encode(marker), _ABANDONED_SECONDS]
        await self._call([(self._begin, self._both(n), arguments) for n in range(BUCKETS)])

    async def fill(self, marker: Marker, puts: Mapping[str, bytes]) -> None:
        """Put fields into the rebuild. Raises IndexMissingError, StaleTurnError."""
        by_bucket: dict[int, list[str | bytes]] = {}
        for field, value in puts.items():
            by_bucket.setdefault(bucket(field), []).extend((field, value))
        head = [encode(marker), _ABANDONED_SECONDS]
        await self._call(
            [
                (self._fill, [self.keys.building(number)], [*head, *pairs])
                for number, pairs in by_bucket.items()
            ]
        )

    async def finish(self, marker: Marker, counts: Mapping[int, int]) -> None:
        """Put the rebuild in place, then tell every reader.

        `counts` is how many fields were put, by bucket: a Redis that fell back meanwhile may have
        kept a part of them. Raises IndexMissingError, StaleTurnError.
        """
        head = [marker.generation, encode(marker)]
        await self._call(
            [
                (self._finish, self._both(number), [*head, counts.get(number, 0)])
                for number in range(BUCKETS)
            ]
        )
        await self._announce(marker, REBUILT)

    def _both(self, number: int) -> list[str]:
        return [self.keys.bucket(number), self.keys.building(number)]

    async def _announce(self, marker: Marker, keys: str | bytes) -> None:
        arguments = [_CHANGES_KEPT, *marker.place, keys]
        await self._call([(self._tell, [self.keys.changes], arguments)])

    async def _call(self, calls: Sequence[tuple[str, list[str], list[Any]]]) -> None:
        pipeline = self._redis.pipeline(transaction=False)
        for script, keys, arguments in calls:
            pipeline.eval(script, len(keys), *keys, *arguments)
        await self._run(pipeline)

    async def _run(self, pipeline: Any) -> list[Any]:
        async with asyncio.timeout(self._deadline):
            replies: list[Any] = await pipeline.execute(raise_on_error=False)
        # One that is stale is so for good, whatever else went wrong.
        refused = [reply for reply in replies if isinstance(reply, Exception)]
        for reply in sorted(refused, key=lambda error: not str(error).startswith("STALE")):
            raise _meaning(reply)
        return replies


def _meaning(error: Exception) -> Exception:
    text = str(error)
    if isinstance(error, ResponseError) and text.startswith("STALE"):
        return StaleTurnError(text)
    if isinstance(error, ResponseError) and text.startswith("MISSING"):
        return IndexMissingError(text)
    if isinstance(error, ResponseError) and text.startswith("LAGGING"):
        return IndexLagsError(text)
    return error
