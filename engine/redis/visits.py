"""Visits in Redis: one hash for each partition of detections that has visits.

The state of the visits and the events that it led to are written together, before the events are
published. So a crash neither loses an event nor finds another one in its place: the next owner
publishes what was not acknowledged, and ignores for visits the records before the position.
"""

import asyncio
from collections.abc import Collection
from importlib.resources import files
from secrets import token_hex
from struct import pack
from typing import Any

import msgspec
from aiokafka import TopicPartition

from engine.kafka.messages import ReceivedDevice
from engine.kafka.workers import PartitionRestartError
from engine.process.failures import retry
from engine.process.metrics import Metrics
from engine.redis.store import RedisStore
from rules.model import Zone
from rules.visits import Visit, VisitBook, VisitEvent

_WRITE = files("engine.redis").joinpath("scripts/write_visits.lua").read_text(encoding="utf-8")
_OPERATION = "visits"


class VisitsTakenOverError(PartitionRestartError):
    """Another process has taken over the visits of the partition, or Redis has lost them."""


class PendingEvent(msgspec.Struct, array_like=True, gc=False):
    """An event that is not acknowledged yet.

    `device` and `zone` are those of the detection at `offset` that led to it; an event by silence
    has no such detection, and names the device alone.
    """

    event: VisitEvent
    device: ReceivedDevice
    zone: Zone
    offset: int


_encode = msgspec.msgpack.Encoder().encode
# The offset, the topic's id and the time (the book's mark) up to which the state counts.
_decode_progress = msgspec.msgpack.Decoder(tuple[int, str | None, float]).decode
_decode_visits = msgspec.msgpack.Decoder(list[Visit]).decode
_decode_event = msgspec.msgpack.Decoder(PendingEvent).decode


class VisitStore(RedisStore):
    """The hash of one assignment of one partition. Waits while Redis does not answer."""

    def __init__(
        self, partition: TopicPartition, topic_id: str | None, *, metrics: Metrics, **options: Any
    ) -> None:
        super().__init__(**options)
        self._key = f"{self.prefix}visits:{{{partition.topic}:{partition.partition}}}"
        self._errors = metrics.redis_errors
        self._topic_id = topic_id
        self._owner, self._held = token_hex(8).encode(), b""
        self._script = self.redis.register_script(_WRITE)

    async def load(self, book: VisitBook) -> tuple[int, list[PendingEvent]]:
        """Take the partition's visits over, into `book`, which is empty.

        Returns the offset up to which they count (0 if there are none), and the events that may
        not have been published, in order. Visits of a topic that was deleted are forgotten.
        """
        fields = await retry(self._take_over, self._errors, _OPERATION)
        if b"progress" not in fields:
            return 0, []
        offset, topic_id, book.mark = _decode_progress(fields[b"progress"])
        if self._topic_id not in (None, topic_id):
            await self._write([name for name in fields if name != b"owner"], [])
            return 0, []
        events = []
        for name, value in fields.items():
            if name.startswith(b"d:"):
                company, _, udid = name[2:].partition(b":")
                book.restore((int(company), udid.decode()), _decode_visits(value))
            elif name.startswith(b"e:"):
                events.append(_decode_event(value))
        book.changed.clear()
        return offset, sorted(events, key=_in_order)

    async def save(
        self,
        book: VisitBook,
        offset: int,
        events: Collection[PendingEvent],
        published: Collection[bytes],
    ) -> None:
        """Write what has changed, up to `offset`, with new events; forget `published` ones by id.

        Raises VisitsTakenOverError; then nothing was written.
        """
        kept = [b"progress", _encode((offset, self._topic_id, book.mark))]
        gone = [b"e:" + each for each in published]
        for (company, udid), visits in book.changed.items():
            name = b"d:%d:%b" % (company, udid.encode())
            if visits:
                kept += name, _encode(list(visits.values()))
            else:
                gone.append(name)
        for each in events:
            kept += b"e:" + each.event.id.bytes, _encode(each)
        await self._write(gone, kept)
        book.changed.clear()

    async def _write(self, gone: list[bytes], kept: list[bytes]) -> None:
        arguments: list[Any] = [self._held, self._owner, _packed(gone), _packed(kept)]
        written = await retry(
            lambda: self._script(keys=[self._key], args=arguments),
            self._errors,
            _OPERATION,
            deadline=self.deadline,
        )
        if not written:
            raise VisitsTakenOverError(f"the visits of {self._key} have another owner")
        self._held = self._owner

    async def _take_over(self) -> dict[bytes, bytes]:
        """Become the owner, so that nobody else can write any more, then read all."""
        redis: Any = self.redis
        async with asyncio.timeout(self.deadline):
            if not await redis.exists(self._key):
                return {}
            await redis.hset(self._key, "owner", self._owner)
        self._held = self._owner
        fields, cursor = dict[bytes, bytes](), -1
        while cursor:
            async with asyncio.timeout(self.deadline):
                cursor, found = await redis.hscan(self._key, max(0, cursor), count=1000)
            fields |= found
        return fields


def _packed(parts: list[bytes]) -> bytes:
    """The number of parts, their lengths, and the parts."""
    return pack(f">{1 + len(parts)}I", len(parts), *map(len, parts)) + b"".join(parts)


def _in_order(pending: PendingEvent) -> tuple[Any, ...]:
    """As they were found: also those of one detection, so that a campaign fires where it had."""
    event = pending.event
    kind = ("enter", "dwell", "exit").index(event.type)
    return event.at, kind, event.minutes, pending.offset, *event.visit.where
