"""Keeps the cache of beacons as new as the index in Redis, and has a missing index rebuilt."""

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
_LATE_SECONDS = 1.0  # between a write and its message; more, and the message is lost

Rebuild = Callable[[], Awaitable[None]]
MessageId = tuple[int, int]

_NOWHERE = WritePosition(0, 0)


class _Written(NamedTuple):
    """The newest write that the buckets' markers name, and the messages that the stream still has:
    the oldest and the newest."""

    position: WritePosition
    oldest: MessageId
    newest: MessageId


class MissedChanges:
    """Tells whether a change message of the index was lost.

    That happens when the node that holds the stream falls back to an older copy, or adds messages
    under ids that this process has read past, because its clock is behind. Each bucket's marker
    names its newest write: one that stays ahead of the messages has lost its message.
    """

    def __init__(self, written: WritePosition) -> None:
        """`written` is the newest write that the cache can not be older than."""
        self._newest_message = written
        self._ahead: tuple[WritePosition, float] | None = None

    def note_message(self, place: WritePosition) -> None:
        """The message of this write has come."""
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
    """One background task a process.

    `rebuild` fills the index from SQL when a marker is missing or names another catalog. It takes
    a lock, so any number of processes may call it. When SQL does not answer it logs that and
    returns, and the watch calls it again.
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
        """Watch until cancelled. Raises what neither time nor a rebuild mends."""
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
            except Exception as error:  # sorted: tried again, or up to stop the process
                if not redis_may_recover(error):
                    raise
                self._errors.failed(error, _CHANGES)
                await backoff.pause()

    async def _follow(self) -> None:
        """Apply changes until the index is missing. The cache is dropped first, so that the changes
        before the newest one need not be read."""
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
            # Messages that were trimmed before the last read may be missing from it.
            trimmed = read_from < written.oldest
            # A stream that went back would stay silent until its ids have passed the position.
            read_from = min(position, written.newest)
            position = await self._apply_changes(read_from, missed)
            if clock() >= full_drop_at:
                self._index.cache.drop_all()
                full_drop_at = clock() + self._max_age
            if missed.has_missed(written.position, clock()) or trimmed:
                log.warning("a change of the index was not heard of, reading everything again")
                self._index.cache.drop_all()

    async def _written(self) -> _Written | None:
        """How far the index and the stream are written; None when a bucket is not built."""
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
                # (A writer of the version before names no step.)
                missed.note_message(
                    WritePosition(int(fields[b"generation"]), int(fields.get(b"step", 0)))
                )
            position = _parse_id(messages[-1][0])
        return position

    def _apply(self, changes: Iterable[bytes]) -> None:
        """Drop what changed, in one pass over the cache."""
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
    """A message's id as numbers, which compare as the stream orders them."""
    milliseconds, _, sequence = message.partition(b"-")
    return int(milliseconds), int(sequence)


def _by_stream(streams: Any) -> Any:
    """XREAD answers with a mapping under RESP3 and with pairs under RESP2."""
    return streams.items() if isinstance(streams, dict) else streams or ()
