"""Publishes lists of messages in batches: one request for each partition."""

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from struct import unpack_from
from typing import Any, TypeAlias
from zlib import crc32

import msgspec
from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    KafkaError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
    ProducerClosed,
    ProducerFenced,
    UnknownProducerId,
)

from engine.kafka.client import REQUEST_SECONDS, connection_options
from engine.process.failures import Backoff, ServerErrors, kafka_may_recover
from engine.process.lifecycle import cancel, close_within
from engine.process.settings import Settings

LARGEST_MESSAGE = 32 * 1024 * 1024
LARGEST_REQUEST = LARGEST_MESSAGE + 1024 * 1024  # with its headers
# A batch stays below the brokers' default message.max.bytes (1 MiB). A single message may be
# larger, if the topic allows it.
_BATCH_BYTES = 900_000
# A larger message is sent alone, so that its refusal affects no other message.
_ALONE_BYTES = 256 * 1024
_REMEMBERED_SECONDS = 60.0  # a topic's limit may be raised
_NO_KEY = b"no key is like this one"
# A longer key is no udid (255 characters): its hash is not computed in Python.
_LONGEST_KEY = 4 * 255
_MURMUR_SEED, _MURMUR, _32_BITS = 0x9747B28C, 0x5BD1E995, 0xFFFFFFFF
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_RENEWALS_AT_ONCE = 3
_CLOSE_SECONDS = 1.0
_METADATA_SECONDS = 2.0
_PUBLISHING = "publishing"

# Errors after which the brokers refuse everything that this producer sends: its sequence has a gap
# since they refused a batch for its size, or they no longer know it. (Closed: another
# task has replaced it already.)
_SEQUENCE_LOST = (
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
    UnknownProducerId,
    ProducerFenced,
    ProducerClosed,
)

Headers = list[tuple[str, bytes]]  # aiokafka takes no other sequence


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """One message to publish.

    A message without a key goes to partition 0.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers


OnAcknowledged = Callable[[Sequence[Any]], None]


def message_size(message: Outgoing) -> int:
    """Bytes of the message's key and value."""
    return len(message.key or b"") + len(message.value or b"")


class MessageTooLargeError(Exception):
    """The topic refuses messages of this size.

    `messages` are all refused messages of a list; the others are published. The caller drops the
    refused ones or publishes dead letters for them.
    """

    def __init__(self, messages: list[Any]) -> None:
        more = f" (and {len(messages) - 1} more)" if len(messages) > 1 else ""
        first = messages[0]
        super().__init__(f"a message of {message_size(first)} bytes for {first.topic}{more}")
        self.messages = messages


class Refusals:
    """The sizes that the brokers refused, by topic, remembered for a minute.

    After a refusal the producer must be replaced, so what a topic refuses must not be tried again
    and again.
    """

    def __init__(self) -> None:
        self._batch_bytes: dict[str, int] = {}
        self._sizes: dict[str, tuple[int, float]] = {}  # the size, and until when

    def batch_bytes(self, topic: str) -> int:
        """The most bytes of a batch of several messages."""
        return self._batch_bytes.get(topic, _BATCH_BYTES)

    def refused_from(self, topic: str) -> int:
        """The size from which on messages of the topic are refused now."""
        most = LARGEST_MESSAGE + 1  # the batch builder refuses such a message without an error
        size, until = self._sizes.get(topic, (most, 0.0))
        return min(most, size) if time.monotonic() < until else most

    def note_size(self, topic: str, messages: int, size: int) -> None:
        """The brokers refused a batch of so many messages, of `size` bytes if it is one."""
        if messages > 1:
            self._batch_bytes[topic] = self.batch_bytes(topic) // 2
            return
        until = time.monotonic() + _REMEMBERED_SECONDS
        self._sizes[topic] = (min(size, self.refused_from(topic)), until)


_Place: TypeAlias = tuple[str, int]


@dataclass(slots=True, eq=False)
class _Batch:
    """Messages that are sent together, and what came of it."""

    place: _Place
    messages: list[Outgoing] = field(default_factory=list)
    builder: Any = None
    size: int = 0
    error: BaseException | None = None

    @property
    def is_one_too_large(self) -> bool:
        """Whether it is a single message that is too large."""
        return len(self.messages) == 1 and isinstance(self.error, MessageSizeTooLargeError)

    @property
    def is_known_too_large(self) -> bool:
        """Whether it is one that was not sent, because the brokers have refused its size lately."""
        return self.builder is None and self.is_one_too_large


def too_large_error(batches: Sequence[_Batch]) -> MessageTooLargeError:
    """The error that names the messages of these batches, each a single one that is too large."""
    return MessageTooLargeError([each.messages[0] for each in batches])


class Publisher:
    """Publishes lists of messages and returns when the brokers have acknowledged all of them.

    Tasks may share it. It has an idempotent producer of its own with further `options`; `start`
    connects it. `errors` counts each failed try that is followed by another one. Several publishers
    may share `refusals`. `is_open` says whether published messages await their commit.
    """

    is_open = False

    def __init__(
        self,
        settings: Settings,
        *,
        errors: ServerErrors | None = None,
        refusals: Refusals | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        fixed = {"enable_idempotence": True, "max_batch_size": LARGEST_REQUEST, "linger_ms": 0}
        every = connection_options(settings) | fixed | dict(options or {})
        self._make = partial(AIOKafkaProducer, **every)
        self._errors = errors or ServerErrors("kafka", may_recover=kafka_may_recover)
        self._producer = self._make()
        self._renewing = asyncio.Lock()
        self._locks = defaultdict[_Place, asyncio.Lock](asyncio.Lock)
        self._replaced: set[asyncio.Task[None]] = set()
        self._deadline = REQUEST_SECONDS
        self._refusals = refusals or Refusals()

    async def start(self) -> None:
        """Connect. Raises KafkaError or TimeoutError."""
        async with asyncio.timeout(self._deadline):
            await self._producer.start()

    async def close(self) -> None:
        """Disconnect within 1 s. Messages of finished `publish` calls are acknowledged."""
        await cancel(self._replaced)
        await close_within(_CLOSE_SECONDS, "producer", self._producer.stop)

    async def publish(
        self,
        messages: Sequence[Outgoing],
        acknowledged: OnAcknowledged | None = None,
    ) -> None:
        """Publish all, with retries after temporary errors.

        `acknowledged` receives the messages of each batch as soon as the brokers have it: those of
        one partition may have to wait for its leader.

        Raises MessageTooLargeError after all other messages are published, and KafkaError for
        permanent errors (authorisation; a clock that the brokers refuse).
        """
        unsent, too_large = messages, list[_Batch]()
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        renewals = 0
        while unsent:
            producer = self._producer
            failed = await self._send(producer, unsent, acknowledged)
            too_large += [each for each in failed if each.is_one_too_large]
            failed = [each for each in failed if not each.is_known_too_large]
            if not failed:
                self._errors.answered(_PUBLISHING)
                break
            unsent = [m for each in failed if not each.is_one_too_large for m in each.messages]
            errors = [each.error for each in failed if each.error is not None]
            # What only needs another producer comes last.
            others = (error for error in errors if not isinstance(error, _SEQUENCE_LOST))
            cause = next(others, errors[0])
            if isinstance(cause, _SEQUENCE_LOST):
                await self._renew(producer)
                renewals += 1
                if renewals <= _RENEWALS_AT_ONCE:
                    self._errors.inc()
                    continue  # the fresh producer knows nothing of what went wrong
            elif not (isinstance(cause, Exception) and kafka_may_recover(cause)):
                raise cause
            if unsent:
                self._errors.failed(cause, _PUBLISHING)
                await backoff.pause()
        if too_large:
            raise too_large_error(too_large)

    async def _send(
        self,
        producer: AIOKafkaProducer,
        messages: Sequence[Outgoing],
        acknowledged: OnAcknowledged | None = None,
    ) -> list[_Batch]:
        """Send the messages once. Returns the failed batches, and notes refusals."""
        topics = {message.topic for message in messages}
        try:
            # A producer that was replaced meanwhile never answers.
            async with asyncio.timeout(_METADATA_SECONDS):
                partitions = {each: len(await producer.partitions_for(each)) for each in topics}
        except (KafkaError, TimeoutError) as error:
            return [_Batch(("", 0), messages=list(messages), error=error)]
        by_place = self._batches(producer, messages, partitions)
        await asyncio.gather(
            *(self._deliver(producer, each, acknowledged) for each in by_place.values())
        )
        return [batch for each in by_place.values() for batch in each if batch.error is not None]

    async def _deliver(
        self,
        producer: AIOKafkaProducer,
        batches: Sequence[_Batch],
        acknowledged: OnAcknowledged | None,
    ) -> None:
        """Send the batches of one partition in order, and wait until the brokers have answered.

        The producer takes a batch when it has sent the last one of that partition: no partition
        waits for the leader of another. Lists of messages wait for the lock in their order, which
        aiokafka does not keep. The answer is waited for however long it takes: aiokafka sends a
        batch again, under the same sequence number, until the brokers have it once. If this class
        gave up and sent the messages in another batch, they would come twice.
        """
        deliveries = []
        unsent = deque(each for each in batches if each.error is None)
        topic, partition = place = batches[0].place
        async with self._locks[place]:
            while unsent:
                try:
                    sent = await producer.send_batch(unsent[0].builder, topic, partition=partition)
                except (KafkaError, TimeoutError) as error:
                    for each in unsent:
                        each.error = error
                    break
                deliveries.append((unsent.popleft(), sent))
        for batch, sent in deliveries:
            while not (await asyncio.wait([sent], timeout=self._deadline))[0]:
                silence = TimeoutError(f"no acknowledgement within {self._deadline:g} s")
                self._errors.failed(silence, _PUBLISHING)
            batch.error = sent.exception()
            if isinstance(batch.error, MessageSizeTooLargeError):
                size = message_size(batch.messages[-1])
                self._refusals.note_size(batch.place[0], len(batch.messages), size)
            elif batch.error is None and acknowledged is not None:
                acknowledged(batch.messages)

    def _batches(
        self,
        producer: AIOKafkaProducer,
        messages: Sequence[Outgoing],
        partitions: dict[str, int],
    ) -> dict[_Place, list[_Batch]]:
        """Messages in batches by topic and partition, each in order.

        One that is known to be too large is in a batch of its own, which has failed.
        """
        by_place: dict[_Place, list[_Batch]] = {}
        open_batches: dict[_Place, _Batch] = {}
        refusals, now = self._refusals, int(time.time() * 1000)
        bounds = {
            each: (refusals.batch_bytes(each), refusals.refused_from(each)) for each in partitions
        }
        topic, place, most, alone, refused = "", ("", 0), 0, 0, 0
        key: bytes | None = _NO_KEY
        batch: _Batch | None = None
        for message in messages:
            value = message.value
            if message.key != key or message.topic != topic:  # those of a device are neighbours
                topic, key = message.topic, message.key
                place = topic, key_hash(key) % partitions[topic]
                batch = open_batches.get(place)
                most, refused = bounds[topic]
                refused -= len(key or b"")
                alone = min(_ALONE_BYTES, most, refused - 1)
            size = 0 if value is None else len(value)
            if batch is None or size > alone or batch.size + size > most:
                batch = open_batches[place] = _Batch(place)
                by_place.setdefault(place, []).append(batch)
                if size < refused:
                    batch.builder = producer.create_batch()
                else:
                    batch.error = MessageSizeTooLargeError()
            batch.messages.append(message)
            if batch.builder is not None:
                batch.size += batch.builder.append(
                    timestamp=now, key=key, value=value, headers=message.headers
                ).size
            if size > alone:
                del open_batches[place]
                batch = None
        return by_place

    async def _renew(self, worn: AIOKafkaProducer) -> None:
        """Replace the producer: its sequence of batches has a gap that the brokers never accept.

        Batches of other tasks that are under way are delivered or fail; those are sent again.
        """
        async with self._renewing:
            if self._producer is not worn:
                return  # another task has replaced it
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
        stopping = asyncio.create_task(_stopped(worn), name="replaced producer")
        self._replaced.add(stopping)
        stopping.add_done_callback(self._replaced.discard)


def key_hash(key: bytes | None) -> int:
    """What says the partition of a message with this key, modulo their number."""
    if key is None:
        return 0
    return crc32(key) if len(key) > _LONGEST_KEY else _murmur2(key) & 0x7FFFFFFF


def _murmur2(key: bytes) -> int:
    """The hash of Java's partitioner: a device has one partition whichever client publishes.

    In words of four bytes: aiokafka's goes byte by byte, and takes two or three times as long.
    """
    words, hashed = len(key) // 4, _MURMUR_SEED ^ len(key)
    for word in unpack_from(f"<{words}I", key):
        mixed = word * _MURMUR & _32_BITS
        hashed = (hashed * _MURMUR ^ (mixed ^ mixed >> 24) * _MURMUR) & _32_BITS
    if rest := key[4 * words :]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * _MURMUR & _32_BITS
    hashed = (hashed ^ hashed >> 13) * _MURMUR & _32_BITS
    return hashed ^ hashed >> 15


async def _stopped(producer: AIOKafkaProducer) -> None:
    with suppress(KafkaError, TimeoutError):  # its senders have seen the error
        await producer.stop()
