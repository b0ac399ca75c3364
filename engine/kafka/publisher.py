"""Publishing in whole batches: one request a partition, no await per message."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import NamedTuple
from zlib import crc32

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    InvalidTimestampError,
    KafkaError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
    ProducerClosed,
    ProducerFenced,
    UnknownProducerId,
)
from aiokafka.partitioner import murmur2
from aiokafka.producer.message_accumulator import BatchBuilder

from engine.kafka.connection import connection_options
from engine.kafka.dating import DatedBy, Dating
from engine.kafka.errors import MessageTooLargeError
from engine.kafka.topic_limits import TopicLimits
from engine.process.failures import kafka_may_recover
from engine.process.retry import Backoff
from engine.process.server_errors import ServerErrors
from engine.process.settings import Settings

log = structlog.get_logger(__name__)

_LARGEST_MESSAGE = 32 * 1024 * 1024
_ROOM_FOR_HEADERS = 1024 * 1024
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0

# The brokers refuse whatever this producer sends next: it lost count when they refused a batch as
# too large or for its date, or they have forgotten it. (Closed: another task has gone on with a
# fresh one.)
_COUNT_LOST = (
    MessageSizeTooLargeError,
    InvalidTimestampError,
    OutOfOrderSequenceNumber,
    UnknownProducerId,
    ProducerFenced,
    ProducerClosed,
)

Headers = list[tuple[str, bytes]]  # aiokafka takes no other sequence

# Java's partitioner, so that a device keeps its partition whoever publishes; remembered because
# it is computed in Python, byte by byte.
_hash = lru_cache(maxsize=131_072)(murmur2)
# A key that can be no udid (255 characters): it is neither remembered nor worked through in Python.
_LONGEST_KEY = 4 * 255
_RENEWALS_AT_ONCE = 3
_PUBLISHING = "publishing"


class Outgoing(NamedTuple):
    """One message to publish. A message without a key goes to partition 0. `timestamp` (epoch
    milliseconds) is that of the record behind it: it is used where this host's clock is refused."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int | None = None


class _Batch(NamedTuple):
    builder: BatchBuilder
    topic: str
    partition: int
    dated: DatedBy
    messages: list[Outgoing]


class _Failed(NamedTuple):
    batch: _Batch
    error: BaseException

    @property
    def is_final(self) -> bool:
        """Whether the batch was refused for its date and cannot be dated otherwise."""
        if not isinstance(self.error, InvalidTimestampError):
            return False
        _, _, _, dated, messages = self.batch
        return dated is DatedBy.NOBODY or any(message.timestamp is None for message in messages)


class _Attempts:
    """How far one list of messages has come."""

    def __init__(self, messages: Sequence[Outgoing], limits: TopicLimits, dating: Dating) -> None:
        self._limits = limits
        self._dating = dating
        self.too_large: list[Outgoing] = []
        self.open: list[Outgoing] = []
        for message in messages:
            # The builder would refuse the largest without a word.
            size = message_size(message)
            is_too_large = size > _LARGEST_MESSAGE or limits.refuses(message.topic, size)
            (self.too_large if is_too_large else self.open).append(message)

    def note(self, failed: list[_Failed]) -> None:
        """Keep open what may be sent again; what was refused together goes in smaller batches."""
        self.open = []
        for batch, error in failed:
            refused = isinstance(error, MessageSizeTooLargeError)
            if isinstance(error, InvalidTimestampError):
                self._dating.refused(batch.topic, batch.dated)
            if refused:
                self._limits.note(
                    batch.topic, [message_size(message) for message in batch.messages]
                )
            if refused and len(batch.messages) == 1:
                self.too_large += batch.messages
            else:
                self.open += batch.messages


def message_size(message: Outgoing) -> int:
    """Bytes of its key and value."""
    return len(message.key or b"") + len(message.value or b"")


class Publisher:
    """Publishes lists of messages and returns when the brokers have acknowledged all of them.

    Safe to share between tasks. `make` gives a producer that is not started yet, `dating` the
    time that each record carries.
    """

    def __init__(
        self,
        *,
        make: Callable[[], AIOKafkaProducer],
        deadline: float,
        errors: ServerErrors | None = None,
        dating: Dating | None = None,
    ) -> None:
        self._make = make
        self._errors = errors or ServerErrors("kafka", may_recover=kafka_may_recover)
        self._producer = make()
        self._renewing = asyncio.Lock()
        self._deadline = deadline
        self._partitions: dict[str, int] = {}
        self._limits = TopicLimits()
        self._dating = dating or Dating()

    @classmethod
    def from_settings(
        cls,
        settings: Settings,
        errors: ServerErrors | None = None,
        dating: Dating | None = None,
    ) -> "Publisher":
        """A publisher with its own idempotent producer; `start` connects it. `errors` counts each
        try that another one follows."""
        make = partial(
            AIOKafkaProducer,
            **connection_options(settings),
            enable_idempotence=True,
            acks="all",
            max_batch_size=_LARGEST_MESSAGE + _ROOM_FOR_HEADERS,
            linger_ms=0,
        )
        deadline = settings.kafka_request_timeout
        return cls(make=make, deadline=deadline, errors=errors, dating=dating)

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
        retry mends (authorisation; this host's clock, where a message has no other time).
        """
        attempts = _Attempts(messages, self._limits, self._dating)
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        renewals = 0
        while attempts.open:
            producer = self._producer
            error = await self._attempt(producer, attempts)
            if error is None:
                self._errors.answered(_PUBLISHING)
                continue
            if isinstance(error, _COUNT_LOST):
                await self._renew(producer)
                renewals += 1
                if renewals <= _RENEWALS_AT_ONCE:
                    self._errors.inc()
                    continue  # the fresh producer knows nothing of what went wrong
            elif not (isinstance(error, Exception) and kafka_may_recover(error)):
                raise error
            if attempts.open:
                self._errors.failed(error, _PUBLISHING)
                await backoff.pause()
        if attempts.too_large:
            raise MessageTooLargeError(attempts.too_large)

    async def _attempt(
        self, producer: AIOKafkaProducer, attempts: _Attempts
    ) -> BaseException | None:
        """Send what is open once; the error that decides how to go on, if any."""
        try:
            async with asyncio.timeout(self._deadline):
                failed = await self._send(producer, attempts.open)
        except (KafkaError, TimeoutError) as error:
            return error  # nothing is known about any of them: all stay open
        attempts.note(failed)
        final = next((each.error for each in failed if each.is_final), None)
        if final is not None:
            raise final
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
                self._errors.failed(error, _PUBLISHING)
                return
            self._producer = fresh
        with suppress(KafkaError, TimeoutError):  # its senders have been told
            async with asyncio.timeout(self._deadline):
                await worn.stop()

    async def _send(
        self, producer: AIOKafkaProducer, messages: Sequence[Outgoing]
    ) -> list[_Failed]:
        """Send all in batches; those that failed."""
        for topic in {message.topic for message in messages}:
            self._partitions[topic] = len(await producer.partitions_for(topic))
        batches = self._batches(producer, messages)
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

    def _batches(self, producer: AIOKafkaProducer, messages: Iterable[Outgoing]) -> list[_Batch]:
        """Messages in batches by topic and partition, in order within their partition."""
        open_batches: dict[tuple[str, int, DatedBy], _Batch] = {}
        batches: list[_Batch] = []
        for message in messages:
            topic, key, value, headers, timestamp = message
            dated, at = self._dating.of(topic, timestamp)
            place = (topic, 0 if key is None else self._partition(topic, key), dated)
            batch = open_batches.get(place)
            size = len(value or b"")
            if batch is None or not self._limits.joins(topic, size, batch.builder.size()):
                batch = _Batch(producer.create_batch(), *place, [])
                open_batches[place] = batch
                batches.append(batch)
            batch.builder.append(timestamp=at, key=key, value=value, headers=headers)
            batch.messages.append(message)
            if not self._limits.joins(topic, size, 0):
                del open_batches[place]  # a large one stays alone
        return batches

    def _partition(self, topic: str, key: bytes) -> int:
        number = crc32(key) if len(key) > _LONGEST_KEY else _hash(key) & 0x7FFFFFFF
        return number % self._partitions[topic]
