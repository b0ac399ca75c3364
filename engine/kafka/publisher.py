"""Publishing in whole batches: one request a partition, no await per message."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import NamedTuple

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    KafkaError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
    ProducerClosed,
    ProducerFenced,
    UnknownProducerId,
)
from aiokafka.partitioner import murmur2
from aiokafka.producer.message_accumulator import BatchBuilder

from engine.failures import describe, kafka_may_recover
from engine.kafka.connection import connection_options
from engine.settings import Settings

log = structlog.get_logger(__name__)

# A batch stays under the brokers' default message.max.bytes (1 MiB); a single message may be
# larger, where the topic allows it.
_BATCH_BYTES = 900_000
_LARGEST_MESSAGE = 32 * 1024 * 1024
_ROOM_FOR_HEADERS = 1024 * 1024
_FIRST_BACKOFF = 0.1
_LAST_BACKOFF = 5.0

# The brokers refuse whatever this producer sends next: it lost count when they refused a batch as
# too large, or they have forgotten it. (Closed: another task has gone on with a fresh one.)
_COUNT_LOST = (
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
    UnknownProducerId,
    ProducerFenced,
    ProducerClosed,
)

Headers = list[tuple[str, bytes]]  # aiokafka takes no other sequence

# Java's partitioner, so that a device keeps its partition whoever publishes; remembered because
# it is computed in Python, byte by byte.
_hash = lru_cache(maxsize=131_072)(murmur2)


class Outgoing(NamedTuple):
    """One message to publish. A message without a key goes to partition 0. `timestamp` (epoch
    milliseconds): by default this host's clock says it."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int | None = None


class MessageTooLargeError(Exception):
    """The topic does not take messages of this size; `messages` are all such ones of a list."""

    def __init__(self, messages: list[Outgoing]) -> None:
        size, topic = len(messages[0].value or b""), messages[0].topic
        more = f" (and {len(messages) - 1} more)" if len(messages) > 1 else ""
        super().__init__(f"a message of {size} bytes for {topic}{more}")
        self.messages = messages


class _Batch(NamedTuple):
    builder: BatchBuilder
    topic: str
    partition: int
    messages: list[Outgoing]


class _Failed(NamedTuple):
    batch: _Batch
    error: BaseException


class _Attempts:
    """How far one list of messages has come."""

    def __init__(self, messages: Sequence[Outgoing]) -> None:
        # The builder would refuse these without a word.
        self.too_large = [message for message in messages if _size(message) > _LARGEST_MESSAGE]
        self.open = [m for m in messages if m not in self.too_large] if self.too_large else messages
        self.batch_bytes = _BATCH_BYTES

    def note(self, failed: list[_Failed]) -> None:
        """Keep open what may be sent again; what was refused together goes in smaller batches."""
        self.open = []
        for batch, error in failed:
            refused = isinstance(error, MessageSizeTooLargeError)
            if refused and len(batch.messages) == 1:
                self.too_large += batch.messages
            else:
                self.open += batch.messages
                self.batch_bytes //= 2 if refused else 1


def _size(message: Outgoing) -> int:
    return len(message.key or b"") + len(message.value or b"")


class Publisher:
    """Publishes lists of messages and returns when the brokers have acknowledged all of them.

    Safe to share between tasks. `make` gives a producer that is not started yet.
    """

    def __init__(self, *, make: Callable[[], AIOKafkaProducer], deadline: float) -> None:
        self._make = make
        self._producer = make()
        self._renewing = asyncio.Lock()
        self._deadline = deadline
        self._partitions: dict[str, int] = {}

    @classmethod
    def from_settings(cls, settings: Settings) -> "Publisher":
        """A publisher with its own idempotent producer; `start` connects it."""
        make = partial(
            AIOKafkaProducer,
            **connection_options(settings),
            enable_idempotence=True,
            acks="all",
            max_batch_size=_LARGEST_MESSAGE + _ROOM_FOR_HEADERS,
            linger_ms=0,
        )
        return cls(make=make, deadline=settings.kafka_request_timeout)

    async def start(self) -> None:
        """Connect. Raises KafkaError or TimeoutError."""
        async with asyncio.timeout(self._deadline):
            await self._producer.start()

    async def close(self) -> None:
        """Disconnect within the deadline. What `publish` has returned for is acknowledged."""
        try:
            async with asyncio.timeout(self._deadline):
                await self._producer.stop()
        except TimeoutError:
            log.warning("closing took too long", what="producer", seconds=self._deadline)

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """Publish all, trying again while the error may pass; repeats keep their content.

        Raises MessageTooLargeError when all others are published, and KafkaError for what no
        retry mends (authorisation).
        """
        attempts = _Attempts(messages)
        backoff = _FIRST_BACKOFF
        while attempts.open:
            producer = self._producer
            error = await self._attempt(producer, attempts)
            if error is None:
                continue
            if isinstance(error, _COUNT_LOST):
                await self._renew(producer)
            elif not (isinstance(error, Exception) and kafka_may_recover(error)):
                raise error
            if attempts.open:
                log.warning(
                    "publishing failed, trying again", error=describe(error), seconds=backoff
                )
                await asyncio.sleep(backoff)
                backoff = min(backoff * 2, _LAST_BACKOFF)
        if attempts.too_large:
            raise MessageTooLargeError(attempts.too_large)

    async def _attempt(
        self, producer: AIOKafkaProducer, attempts: _Attempts
    ) -> BaseException | None:
        """Send what is open once; the error that decides how to go on, if any."""
        try:
            async with asyncio.timeout(self._deadline):
                failed = await self._send(producer, attempts.open, attempts.batch_bytes)
        except (KafkaError, TimeoutError) as error:
            return error  # nothing is known about any of them: all stay open
        attempts.note(failed)
        lost = [error for _, error in failed if isinstance(error, _COUNT_LOST)]
        others = [error for _, error in failed if not isinstance(error, _COUNT_LOST)]
        return next(iter(others + lost), None)

    async def _renew(self, worn: AIOKafkaProducer) -> None:
        """Go on with a fresh producer. The numbers by which the brokers know this one's batches
        have a gap that never closes; what other tasks have under way on it fails and is sent again.
        """
        async with self._renewing:
            if self._producer is not worn:
                return  # another task has
            fresh = self._make()
            try:
                async with asyncio.timeout(self._deadline):
                    await fresh.start()
            except (KafkaError, TimeoutError) as error:
                await fresh.stop()
                if not kafka_may_recover(error):
                    raise
                log.warning("no fresh producer yet", error=describe(error))
                return
            self._producer = fresh
        with suppress(KafkaError, TimeoutError):  # its senders have been told
            async with asyncio.timeout(self._deadline):
                await worn.stop()

    async def _send(
        self, producer: AIOKafkaProducer, messages: Sequence[Outgoing], batch_bytes: int
    ) -> list[_Failed]:
        """Send all in batches; those that failed."""
        for topic in {message.topic for message in messages}:
            self._partitions[topic] = len(await producer.partitions_for(topic))
        batches = self._batches(producer, messages, batch_bytes)
        acknowledgements = [
            await producer.send_batch(batch.builder, batch.topic, partition=batch.partition)
            for batch in batches
        ]
        await asyncio.wait(acknowledgements)
        return [
            _Failed(batch, error)
            for batch, acknowledgement in zip(batches, acknowledgements, strict=True)
            if (error := acknowledgement.exception()) is not None
        ]

    def _batches(
        self, producer: AIOKafkaProducer, messages: Iterable[Outgoing], most_bytes: int
    ) -> list[_Batch]:
        """Messages in batches by topic and partition, in order within their partition."""
        open_batches: dict[tuple[str, int], _Batch] = {}
        batches: list[_Batch] = []
        for message in messages:
            topic, key, value, headers, timestamp = message
            place = (topic, 0 if key is None else self._partition(topic, key))
            batch = open_batches.get(place)
            if batch is None or batch.builder.size() + len(value or b"") > most_bytes:
                batch = _Batch(producer.create_batch(), *place, [])
                open_batches[place] = batch
                batches.append(batch)
            batch.builder.append(timestamp=timestamp, key=key, value=value, headers=headers)
            batch.messages.append(message)
        return batches

    def _partition(self, topic: str, key: bytes) -> int:
        partition: int = (_hash(key) & 0x7FFFFFFF) % self._partitions[topic]
        return partition
