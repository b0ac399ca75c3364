"""Keeps the cache of beacons up to date with the index, and has a missing index rebuilt."""

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

_BLOCK_MS = 250  # also the time in which a missing marker is noticed without any detection
_MOST_CHANGES = 1000
_CHANGES = "changes of the index"
_LATE_SECONDS = 1.0  # between a write and its message; after that the message counts as lost

Rebuild = Callable[[], Awaitable[None]]
MessageId = tuple[int, int]

_NOWHERE = WritePosition(0, 0)


class _Written(NamedTuple):
    """The newest write by the buckets' markers, and the stream's oldest and newest message."""

    position: WritePosition
    oldest: MessageId
    newest: MessageId


class MissedChanges:
    """Detects that a change message of the index was lost.

    A message is lost when the node that holds the stream falls back to an older copy, or when the
    node's clock is behind and it adds messages under ids that this process has read past. Each
    bucket's marker names its newest write. If a marker stays ahead of the messages, its message is
    lost.
    """

    def __init__(self, written: WritePosition) -> None:
        """`written` is the newest write that the cache is certain to include."""
        self._newest_message = written
        self._ahead: tuple[WritePosition, float] | None = None

    def note_message(self, place: WritePosition) -> None:
        """The message of this write has been read."""
        self._newest_message = max(self._newest_message, place)

    def has_missed(self, written: WritePosition, now: float) -> bool:
        """Whether the message of the newest write, `written`, is lost. Then drop the cache."""
        if self._ahead is not None and self._ahead[0] <= self._newest_message:
            self._ahead = None
        if written <= self._newest_message:
            return False
        if self._ahead is None:
            self._ahead = written, now
        if now - self._ahead[1] < _LATE_SECONDS:
            return False
        self._newest_message, self._ahead = written, None
        return True


class IndexWatch:
    """A background task; each process has one.

    `rebuild` fills the index from SQL when a marker is missing or names another catalog. It takes a
    lock, so any number of processes may call it. If SQL does not answer, it logs that and returns,
    and the watch calls it again.
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
        """Watch until cancelled. Raises errors that neither time nor a rebuild mends."""
        backoff = Backoff()
        warned = False
        await self._rebuild()
        while True:
            try:
                if await self._written() is not None:
                    backoff.reset()
                    warned = False
                    await self._follow()
                self._index.built.clear()
                if not warned:
                    log.warning("the index is missing from Redis, rebuilding it from SQL")
                warned = True
                await self._rebuild()
            except Exception as error:  # temporary errors are retried, others stop the process
                if not redis_may_recover(error):
                    raise
                self._errors.failed(error, _CHANGES)
                await backoff.pause()

    async def _follow(self) -> None:
        """Apply changes until the index is missing.

        The cache is dropped first, so that earlier changes need not be read.
        """
        written = await self._written()
        position = (0, 0) if written is None else written.newest
        read_from = position
        missed = MissedChanges(_NOWHERE if written is None else written.position)
        self._index.cache.drop_all()
        clock = asyncio.get_running_loop().time
        full_drop_at = clock() + self._max_age
        while (written := await self._written()) is not None:
            self._index.built.set()
            self._errors.answered(_CHANGES)
            # Messages may have been trimmed before they were read.
            trimmed = read_from < written.oldest
            # A stream of an older copy would give nothing until its ids pass the position.
            read_from = min(position, written.newest)
            position = await self._apply_changes(read_from, missed)
            if clock() >= full_drop_at:
                self._index.cache.drop_all()
                full_drop_at = clock() + self._max_age
            if missed.has_missed(written.position, clock()) or trimmed:
                log.warning("a change of the index was not heard of, reading everything again")
                self._index.cache.drop_all()

    async def _written(self) -> _Written | None:
        """How far the index and the stream are written; None if a bucket is not built."""
        pipeline: Any = self._redis.pipeline(transaction=False)
        for number in range(BUCKETS):
            pipeline.hget(self._keys.bucket(number), MARKER_FIELD)
        pipeline.xrange(self._keys.changes, count=1)
        pipeline.xrevrange(self._keys.changes, count=1)
        async with asyncio.timeout(self._deadline):
            *markers, first, last = await pipeline.execute()
        if None in markers:
            return None
        position = max(decode_marker(marker).position for marker in markers)
        oldest, newest = (_parse_id(each[0][0]) if each else (0, 0) for each in (first, last))
        return _Written(position, oldest, newest)

    async def _apply_changes(self, position: MessageId, missed: MissedChanges) -> MessageId:
        after = "{}-{}".format(*position)
        async with asyncio.timeout(self._deadline + _BLOCK_MS / 1000):
            streams: Any = await self._redis.xread(
                {self._keys.changes: after}, count=_MOST_CHANGES, block=_BLOCK_MS
            )
        for _, messages in _by_stream(streams):
            self._apply(fields[b"keys"] for _, fields in messages)
            for _, fields in messages:
                # (A writer of the previous version names no step.)
                missed.note_message(
                    WritePosition(int(fields[b"generation"]), int(fields.get(b"step", 0)))
                )
            position = _parse_id(messages[-1][0])
        return position

    def _apply(self, changes: Iterable[bytes]) -> None:
        """Drop the changed beacons, in one pass over the cache."""
        changed: set[str] = set()
        drop_all = False
        for keys in changes:
            if keys == REBUILT.encode():
                drop_all = True
            else:
                changed.update(msgspec.json.decode(keys, type=list[str]))
        if drop_all:
            self._index.cache.drop_all()
        else:
            self._index.cache.drop(changed)


def _parse_id(message: bytes) -> MessageId:
    """A message's id as numbers, which compare in the stream's order."""
    milliseconds, _, sequence = message.partition(b"-")
    return int(milliseconds), int(sequence)


def _by_stream(streams: Any) -> Any:
    """XREAD answers with a mapping under RESP3 and with pairs under RESP2."""
    return streams.items() if isinstance(streams, dict) else streams or ()
