"""Publishing in whole batches: one request a partition, no await per message."""

import asyncio
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError
from aiokafka.partitioner import murmur2
from aiokafka.producer.message_accumulator import BatchBuilder

from engine.failures import kafka_may_recover
from engine.kafka.connection import connection_options
from engine.settings import Settings

log = structlog.get_logger(__name__)

# A batch stays under the brokers' default message.max.bytes (1 MiB); a single message may be
# larger, where the topic allows it.
_BATCH_BYTES = 900_000
_LARGEST_MESSAGE = 32 * 1024 * 1024
_FIRST_BACKOFF = 0.1
_LAST_BACKOFF = 5.0

Headers = list[tuple[str, bytes]]  # aiokafka takes no other sequence

# Java's partitioner, so that a device keeps its partition whoever publishes; remembered because
# it is computed in Python, byte by byte.
_hash = lru_cache(maxsize=131_072)(murmur2)


class Outgoing(NamedTuple):
    """One message to publish. A message without a key goes to partition 0."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers


class MessageTooLargeError(Exception):
    """The topic does not take a message of this size; `message` is the one."""

    def __init__(self, message: Outgoing) -> None:
        super().__init__(f"a message of {len(message.value or b'')} bytes for {message.topic}")
        self.message = message


class _Batch(NamedTuple):
    builder: BatchBuilder
    topic: str
    partition: int
    messages: list[Outgoing]


class Publisher:
    """Publishes lists of messages and returns when the brokers have acknowledged all of them.

    Safe to share between tasks. `close` flushes what was accepted.
    """

    def __init__(self, *, producer: AIOKafkaProducer, deadline: float) -> None:
        self._producer = producer
        self._deadline = deadline
        self._partitions: dict[str, int] = {}

    @classmethod
    def from_settings(cls, settings: Settings) -> "Publisher":
        """A publisher with its own idempotent producer; `start` connects it."""
        producer = AIOKafkaProducer(
            **connection_options(settings),
            enable_idempotence=True,
            acks="all",
            max_batch_size=_LARGEST_MESSAGE,
            linger_ms=0,
        )
        return cls(producer=producer, deadline=settings.kafka_request_timeout)

    async def start(self) -> None:
        """Connect. Raises KafkaError or TimeoutError."""
        async with asyncio.timeout(self._deadline):
            await self._producer.start()

    async def close(self) -> None:
        """Flush and disconnect within the deadline."""
        async with asyncio.timeout(self._deadline):
            await self._producer.stop()

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """Publish all, trying again while the error may pass; repeats keep their content.

        Raises MessageTooLargeError (others of the list may be published by then) and KafkaError
        for what no retry mends (authorisation, a fenced producer).
        """
        if not messages:
            return
        backoff = _FIRST_BACKOFF
        while True:
            try:
                async with asyncio.timeout(self._deadline):
                    await self._send(messages)
            except (KafkaError, TimeoutError) as error:
                if not kafka_may_recover(error):
                    raise
                log.warning("publishing failed, trying again", error=repr(error), seconds=backoff)
            else:
                return
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, _LAST_BACKOFF)

    async def _send(self, messages: Sequence[Outgoing]) -> None:
        for topic in {message.topic for message in messages}:
            self._partitions[topic] = len(await self._producer.partitions_for(topic))
        batches = self._batches(messages)
        acknowledgements = [
            await self._producer.send_batch(batch.builder, batch.topic, partition=batch.partition)
            for batch in batches
        ]
        await asyncio.wait(acknowledgements)
        for batch, acknowledgement in zip(batches, acknowledgements, strict=True):
            _raise_failure(batch, acknowledgement)

    def _batches(self, messages: Iterable[Outgoing]) -> list[_Batch]:
        """Messages in batches by topic and partition, in order within their partition."""
        open_batches: dict[tuple[str, int], _Batch] = {}
        batches: list[_Batch] = []
        for message in messages:
            topic, key, value, headers = message
            place = (topic, 0 if key is None else self._partition(topic, key))
            batch = open_batches.get(place)
            if batch is None or batch.builder.size() + len(value or b"") > _BATCH_BYTES:
                batch = _Batch(self._producer.create_batch(), *place, [])
                open_batches[place] = batch
                batches.append(batch)
            if batch.builder.append(timestamp=None, key=key, value=value, headers=headers) is None:
                raise MessageTooLargeError(message)
            batch.messages.append(message)
        return batches

    def _partition(self, topic: str, key: bytes) -> int:
        partition: int = (_hash(key) & 0x7FFFFFFF) % self._partitions[topic]
        return partition


def _raise_failure(batch: _Batch, acknowledgement: "asyncio.Future[object]") -> None:
    error = acknowledgement.exception()
    if isinstance(error, MessageSizeTooLargeError) and len(batch.messages) == 1:
        raise MessageTooLargeError(batch.messages[0]) from error
    if error is not None:
        raise error
