"""Keeps the process's view of the index true: change messages, the marker, age, rebuilding."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

import msgspec
import structlog

from catalog.index.entries import (
    BUCKETS,
    MARKER_FIELD,
    REBUILT,
    IndexKeys,
    WritePosition,
    decode_marker,
)
from catalog.redis_connection import RedisClient
from engine.process.failures import redis_may_recover
from engine.process.metrics import Metrics
from engine.process.retry import Backoff
from engine.trigger.beacon_index import BeaconIndex

log = structlog.get_logger(__name__)

_BLOCK_MS = 250  # also how soon a missing marker is noticed when no detection misses it first
_MOST_CHANGES = 1000
_CHANGES = "changes of the index"
_UNHEARD_SECONDS = 1.0  # between a write and its message; more, and the message is lost

Rebuild = Callable[[], Awaitable[None]]
MessageId = tuple[int, int]

_NOWHERE = WritePosition(0, 0)


class _Written(NamedTuple):
    """The newest write that the buckets' markers name, and the stream's newest message."""

    place: WritePosition
    message: MessageId


class Hearing:
    """Whether every write to the index has been heard of.

    A message is lost when the node that holds the stream falls back to an older copy, or adds
    messages under ids that this process has passed, its clock being behind. The markers in the
    buckets tell: one that stays ahead of the messages was never heard of.
    """

    def __init__(self, written: WritePosition) -> None:
        """`written` is the newest write when everything was forgotten."""
        self._heard = written
        self._missed: tuple[WritePosition, float] | None = None

    def hear(self, place: WritePosition) -> None:
        """A message of this write has come."""
        self._heard = max(self._heard, place)

    def has_missed(self, written: WritePosition, now: float) -> bool:
        """Whether a write was missed; `written` is the newest one. Then forget everything."""
        if self._missed is not None and self._missed[0] <= self._heard:
            self._missed = None
        if written <= self._heard:
            return False
        if self._missed is None:
            self._missed = written, now
        if now - self._missed[1] < _UNHEARD_SECONDS:
            return False
        self._heard, self._missed = written, None
        return True


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
        backoff = Backoff()
        said = False
        await self._rebuild()
        while True:
            try:
                if await self._written() is not None:
                    backoff.reset()
                    said = False
                    await self._follow()
                self._index.built.clear()
                if not said:
                    log.warning("the index is missing from Redis, rebuilding it from SQL")
                said = True
                await self._rebuild()
            except Exception as error:  # sorted: tried again, or up to stop the process
                if not redis_may_recover(error):
                    raise
                self._errors.failed(error, _CHANGES)
                await backoff.pause()

    async def _follow(self) -> None:
        """From the newest change on, until the index is missing. What came before is covered by
        dropping everything."""
        written = await self._written()
        position = (0, 0) if written is None else written.message
        hearing = Hearing(_NOWHERE if written is None else written.place)
        self._index.cache.drop_all()
        clock = asyncio.get_running_loop().time
        full_drop_at = clock() + self._max_age
        while (written := await self._written()) is not None:
            self._index.built.set()
            self._errors.answered(_CHANGES)
            # A stream that went back would stay silent until its ids have passed the position.
            position = await self._apply_changes(min(position, written.message), hearing)
            if clock() >= full_drop_at:
                self._index.cache.drop_all()
                full_drop_at = clock() + self._max_age
            if hearing.has_missed(written.place, clock()):
                log.warning("a change of the index was not heard of, reading everything again")
                self._index.cache.drop_all()

    async def _written(self) -> _Written | None:
        """How far the index and the stream are written; None when a bucket is not built."""
        pipeline: Any = self._redis.pipeline(transaction=False)
        for number in range(BUCKETS):
            pipeline.hget(self._keys.bucket(number), MARKER_FIELD)
        pipeline.xrevrange(self._keys.changes, count=1)
        async with asyncio.timeout(self._deadline):
            *markers, newest = await pipeline.execute()
        if None in markers:
            return None
        place = max(decode_marker(marker).position for marker in markers)
        return _Written(place, _numbers(newest[0][0]) if newest else (0, 0))

    async def _apply_changes(self, position: MessageId, hearing: Hearing) -> MessageId:
        after = "{}-{}".format(*position)
        async with asyncio.timeout(self._deadline + _BLOCK_MS / 1000):
            streams: Any = await self._redis.xread(
                {self._keys.changes: after}, count=_MOST_CHANGES, block=_BLOCK_MS
            )
        for _, messages in _pairs(streams):
            self._apply(fields[b"keys"] for _, fields in messages)
            for _, fields in messages:
                # (A writer of the version before names no step.)
                hearing.hear(WritePosition(int(fields[b"generation"]), int(fields.get(b"step", 0))))
            position = _numbers(messages[-1][0])
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


def _numbers(message: bytes) -> MessageId:
    """A message's id, to be compared."""
    milliseconds, _, sequence = message.partition(b"-")
    return int(milliseconds), int(sequence)


def _pairs(streams: Any) -> Any:
    """XREAD answers with a mapping under RESP3 and with pairs under RESP2."""
    return streams.items() if isinstance(streams, dict) else streams or ()
