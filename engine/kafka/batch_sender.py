"""Sends messages in batches, one request for each partition, each within its topic's limit."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias, TypeVar
from zlib import crc32

from aiokafka import AIOKafkaProducer
from aiokafka.errors import InvalidTimestampError, MessageSizeTooLargeError
from aiokafka.producer.message_accumulator import BatchBuilder

from engine.kafka.murmur2 import murmur2
from engine.kafka.record_time import DatedBy, RecordTime

LARGEST_MESSAGE = 32 * 1024 * 1024
# A batch stays below the brokers' default message.max.bytes (1 MiB). A single message may be
# larger, if the topic allows it.
_BATCH_BYTES = 900_000
# A larger message is sent alone, so that its refusal affects no other message.
_ALONE_BYTES = 256 * 1024
_REMEMBERED = 60.0  # seconds: a topic's limit may be raised

# Java's partitioner, so that a device has one partition whichever client publishes. Cached, because
# it is computed in Python, byte by byte.
_hash = lru_cache(maxsize=131_072)(murmur2)
# A longer key is no udid (255 characters): its hash is neither cached nor computed in Python.
_LONGEST_KEY = 4 * 255

Headers = list[tuple[str, bytes]]  # aiokafka takes no other sequence
Acknowledgement: TypeAlias = "asyncio.Future[Any]"
_Result = TypeVar("_Result")


class Outgoing(NamedTuple):
    """One message to publish.

    A message without a key goes to partition 0. `timestamp` (epoch milliseconds) is that of the
    record that caused the message; it is used if the brokers refuse this host's clock.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int | None = None


OnAcknowledged = Callable[[Sequence[Outgoing]], None]


def message_size(message: Outgoing) -> int:
    """Bytes of the message's key and value."""
    return len(message.key or b"") + len(message.value or b"")


class _Refusal(NamedTuple):
    size: int
    until: float


class TopicLimits:
    """The sizes that the brokers refused, by topic, remembered for a minute.

    After a refusal the producer's sequence of batches has a gap and it must be replaced, so the
    same message must not be tried again and again. `clock` in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._batch_bytes: dict[str, int] = {}
        self._refusals: dict[str, _Refusal] = {}

    def joins(self, topic: str, size: int, others: int) -> bool:
        """Whether a message of `size` may join a batch of `others` bytes."""
        return size <= _ALONE_BYTES and others + size <= self._batch_bytes.get(topic, _BATCH_BYTES)

    def refused_from(self, topic: str) -> int:
        """The size from which on messages of the topic are refused now."""
        most = LARGEST_MESSAGE + 1  # the batch builder refuses such a message without an error
        refusal = self._refusals.get(topic)
        if refusal is not None and self._clock() < refusal.until:
            return min(most, refusal.size)
        return most

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
    """Messages that were sent together and refused, and the error.

    `dated` says which clock dated them, if the brokers have answered.
    """

    messages: list[Outgoing]
    error: BaseException
    dated: DatedBy | None = None

    @property
    def is_one_too_large(self) -> bool:
        """Whether it is a single message that is too large."""
        return len(self.messages) == 1 and isinstance(self.error, MessageSizeTooLargeError)

    @property
    def is_final(self) -> bool:
        """Whether it was refused for its timestamp and no other timestamp can be tried."""
        if not isinstance(self.error, InvalidTimestampError):
            return False
        undated = any(message.timestamp is None for message in self.messages)
        return undated or self.dated is DatedBy.NOBODY


class BatchSender:
    """Sends lists of messages with a given producer; `record_time` gives their timestamps.

    Refusals are noted in `limits` and `record_time`, which several senders may share.
    """

    def __init__(self, limits: TopicLimits, record_time: RecordTime) -> None:
        self.limits = limits
        self._record_time = record_time
        self._partitions: dict[str, int] = {}

    async def send(
        self,
        producer: AIOKafkaProducer,
        messages: Sequence[Outgoing],
        acknowledged: OnAcknowledged | None = None,
    ) -> list[FailedBatch]:
        """Send all messages in batches. Returns the failed batches; notes refusals.

        `acknowledged` receives the messages of each batch when the brokers have it.
        """
        for topic in {message.topic for message in messages}:
            self._partitions[topic] = len(await producer.partitions_for(topic))
        batches = self._batches(producer, messages)
        acknowledgements = await self._hand_over(producer, batches, acknowledged)
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

    async def _hand_over(
        self,
        producer: AIOKafkaProducer,
        batches: Sequence[_MessageBatch],
        acknowledged: OnAcknowledged | None,
    ) -> list[Acknowledgement]:
        """The acknowledgements to come. The producer takes a batch when it has sent the last one of
        that partition: no partition waits for the leader of another."""
        by_place: dict[tuple[str, int], list[_MessageBatch]] = {}
        for batch in batches:
            by_place.setdefault((batch.topic, batch.partition), []).append(batch)
        in_turn = [_hand_over_in_order(producer, each, acknowledged) for each in by_place.values()]
        if len(in_turn) == 1:
            found = [await in_turn[0]]
        else:
            found = _without_errors(await asyncio.gather(*in_turn, return_exceptions=True))
        of_batch = {id(batch): each for some in found for batch, each in some}
        return [of_batch[id(batch)] for batch in batches]

    def _batches(
        self, producer: AIOKafkaProducer, messages: Iterable[Outgoing]
    ) -> list[_MessageBatch]:
        """Messages in batches by topic, partition and dating, each in order."""
        by_topic: dict[str, list[Outgoing]] = {}
        for message in messages:
            by_topic.setdefault(message.topic, []).append(message)
        return [
            batch
            for topic, of_topic in by_topic.items()
            for batch in self._batches_of(producer, topic, of_topic)
        ]

    def _batches_of(
        self, producer: AIOKafkaProducer, topic: str, messages: Iterable[Outgoing]
    ) -> list[_MessageBatch]:
        open_batches: dict[tuple[int, DatedBy], _MessageBatch] = {}
        batches: list[_MessageBatch] = []
        date, joins = self._record_time.dating(topic), self.limits.joins
        last_key, partition = None, 0
        for message in messages:
            _, key, value, headers, timestamp = message
            dated, at = date(timestamp)
            if key != last_key:  # messages of one device follow each other
                last_key, partition = key, 0 if key is None else self._partition(topic, key)
            place = (partition, dated)
            batch = open_batches.get(place)
            size = 0 if value is None else len(value)
            if batch is None or not joins(topic, size, batch.builder.size()):
                batch = _MessageBatch(producer.create_batch(), topic, *place, [])
                batches.append(batch)
                # A large message is a batch of its own.
                if joins(topic, size, 0):
                    open_batches[place] = batch
                else:
                    open_batches.pop(place, None)
            batch.builder.append(timestamp=at, key=key, value=value, headers=headers)
            batch.messages.append(message)
        return batches

    def _partition(self, topic: str, key: bytes) -> int:
        number = crc32(key) if len(key) > _LONGEST_KEY else _hash(key) & 0x7FFFFFFF
        return number % self._partitions[topic]


async def _hand_over_in_order(
    producer: AIOKafkaProducer,
    batches: Sequence[_MessageBatch],
    acknowledged: OnAcknowledged | None,
) -> list[tuple[_MessageBatch, Acknowledgement]]:
    """Hand over the batches of one partition, in order."""
    found = []
    for batch in batches:
        future = await producer.send_batch(batch.builder, batch.topic, partition=batch.partition)
        if acknowledged is not None:
            future.add_done_callback(partial(_pass_on, batch.messages, acknowledged))
        found.append((batch, future))
    return found


def _pass_on(
    messages: list[Outgoing], acknowledged: OnAcknowledged, acknowledgement: Acknowledgement
) -> None:
    if not acknowledgement.cancelled() and acknowledgement.exception() is None:
        acknowledged(messages)


def _without_errors(results: Sequence[_Result | BaseException]) -> list[_Result]:
    """Raises the first error that is among the results."""
    for each in results:
        if isinstance(each, BaseException):
            raise each
    return [each for each in results if not isinstance(each, BaseException)]
