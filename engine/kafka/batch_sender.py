"""Messages in batches, one request a partition, each within what its topic takes."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple
from zlib import crc32

from aiokafka import AIOKafkaProducer
from aiokafka.errors import InvalidTimestampError, MessageSizeTooLargeError
from aiokafka.partitioner import murmur2
from aiokafka.producer.message_accumulator import BatchBuilder

from engine.kafka.record_time import DatedBy, RecordTime

LARGEST_MESSAGE = 32 * 1024 * 1024
# A batch stays under the brokers' default message.max.bytes (1 MiB); a single message may be
# larger, where the topic allows it.
_BATCH_BYTES = 900_000
# A larger message leaves alone, so that a refusal names it, and takes no other along.
_ALONE_BYTES = 256 * 1024
_REMEMBERED = 60.0  # seconds: a topic's limit may be raised

# Java's partitioner, so that a device keeps its partition whoever publishes; remembered because
# it is computed in Python, byte by byte.
_hash = lru_cache(maxsize=131_072)(murmur2)
# A key that can be no udid (255 characters): it is neither remembered nor worked through in Python.
_LONGEST_KEY = 4 * 255

Headers = list[tuple[str, bytes]]  # aiokafka takes no other sequence


class Outgoing(NamedTuple):
    """One message to publish. A message without a key goes to partition 0. `timestamp` (epoch
    milliseconds) is that of the record behind it: it is used where this host's clock is refused."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int | None = None


def message_size(message: Outgoing) -> int:
    """Bytes of the message's key and value."""
    return len(message.key or b"") + len(message.value or b"")


class _Refusal(NamedTuple):
    size: int
    until: float


class TopicLimits:
    """What the brokers refused as too large, remembered for a minute, by topic.

    A refusal costs the producer its place in the sequence of all its batches, so the same must
    not be asked again and again. `clock` in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._batch_bytes: dict[str, int] = {}
        self._refusals: dict[str, _Refusal] = {}

    def joins(self, topic: str, size: int, others: int) -> bool:
        """Whether a message of `size` may join a batch that has `others` bytes."""
        return size <= _ALONE_BYTES and others + size <= self._batch_bytes.get(topic, _BATCH_BYTES)

    def refuses(self, message: Outgoing) -> bool:
        """Whether the topic refused a message of this size, or less, a short while ago."""
        size = message_size(message)
        refusal = self._refusals.get(message.topic)
        if refusal is not None and size >= refusal.size and self._clock() < refusal.until:
            return True
        return size > LARGEST_MESSAGE  # the builder would refuse it without a word

    def note_refusal(self, topic: str, sizes: Sequence[int]) -> None:
        """The brokers refused a batch of messages of these sizes."""
        if len(sizes) > 1:
            self._batch_bytes[topic] = self._batch_bytes.get(topic, _BATCH_BYTES) // 2
            return
        known = self._refusals.get(topic)
        now = self._clock()
        size = sizes[0] if known is None or now >= known.until else min(sizes[0], known.size)
        self._refusals[topic] = _Refusal(size, now + _REMEMBERED)


class _MessageBatch(NamedTuple):
    builder: BatchBuilder
    topic: str
    partition: int
    dated: DatedBy
    messages: list[Outgoing]


class FailedBatch(NamedTuple):
    """Messages that went together and were not taken, and why. `dated` is whose time they carried,
    where the brokers have answered."""

    messages: list[Outgoing]
    error: BaseException
    dated: DatedBy | None = None

    @property
    def is_one_too_large(self) -> bool:
        """Whether it is a single message, which no smaller batch can carry."""
        return len(self.messages) == 1 and isinstance(self.error, MessageSizeTooLargeError)

    @property
    def is_final(self) -> bool:
        """Whether it was refused for its date and cannot be dated otherwise."""
        if not isinstance(self.error, InvalidTimestampError):
            return False
        undated = any(message.timestamp is None for message in self.messages)
        return undated or self.dated is DatedBy.NOBODY


class BatchSender:
    """Sends lists of messages with the producer it is given, each dated by `record_time`.

    What the brokers refuse is noted in `limits` and `record_time`, which may be shared by many.
    """

    def __init__(self, limits: TopicLimits, record_time: RecordTime) -> None:
        self.limits = limits
        self._record_time = record_time
        self._partitions: dict[str, int] = {}

    async def send(
        self, producer: AIOKafkaProducer, messages: Sequence[Outgoing]
    ) -> list[FailedBatch]:
        """Send all in batches; those that failed. Refusals for size or date are remembered."""
        for topic in {message.topic for message in messages}:
            self._partitions[topic] = len(await producer.partitions_for(topic))
        batches = self._batches(producer, messages)
        acknowledgements = [
            await producer.send_batch(batch.builder, batch.topic, partition=batch.partition)
            for batch in batches
        ]
        if acknowledgements:
            await asyncio.wait(acknowledgements)
        failed = []
        for batch, acknowledgement in zip(batches, acknowledgements, strict=True):
            error = acknowledgement.exception()
            if isinstance(error, MessageSizeTooLargeError):
                self.limits.note_refusal(batch.topic, [message_size(m) for m in batch.messages])
            elif isinstance(error, InvalidTimestampError):
                self._record_time.refused(batch.topic, batch.dated)
            if error is not None:
                failed.append(FailedBatch(batch.messages, error, batch.dated))
        return failed

    def _batches(
        self, producer: AIOKafkaProducer, messages: Iterable[Outgoing]
    ) -> list[_MessageBatch]:
        """Messages in batches by topic, partition and whose time they carry, each in order."""
        open_batches: dict[tuple[str, int, DatedBy], _MessageBatch] = {}
        batches: list[_MessageBatch] = []
        for message in messages:
            topic, key, value, headers, timestamp = message
            dated, at = self._record_time.of(topic, timestamp)
            place = (topic, 0 if key is None else self._partition(topic, key), dated)
            batch = open_batches.get(place)
            size = len(value or b"")
            if batch is None or not self.limits.joins(topic, size, batch.builder.size()):
                batch = _MessageBatch(producer.create_batch(), *place, [])
                open_batches[place] = batch
                batches.append(batch)
            batch.builder.append(timestamp=at, key=key, value=value, headers=headers)
            batch.messages.append(message)
            if not self.limits.joins(topic, size, 0):
                del open_batches[place]  # a large one stays alone
        return batches

    def _partition(self, topic: str, key: bytes) -> int:
        number = crc32(key) if len(key) > _LONGEST_KEY else _hash(key) & 0x7FFFFFFF
        return number % self._partitions[topic]
