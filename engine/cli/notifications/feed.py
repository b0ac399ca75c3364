"""Records of one topic as they come, read as no member of any group: it disturbs nobody."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from engine.kafka.connection import connection_options
from engine.process.settings import Settings

_POLL_MS = 500
_LARGEST_POLL = 500


class TopicMissingError(Exception):
    """There is nothing to read: the topic does not exist."""


class Feed:
    """What arrives from now on, or everything there is and then what arrives."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer

    async def records(self) -> AsyncIterator[ConsumerRecord[bytes, bytes]]:
        """Without an end; a device's records in their order. Raises KafkaError."""
        while True:
            fetched = await self._consumer.getmany(timeout_ms=_POLL_MS, max_records=_LARGEST_POLL)
            for records in fetched.values():
                for record in records:
                    yield record


@asynccontextmanager
async def open_feed(settings: Settings, topic: str, *, from_beginning: bool) -> AsyncIterator[Feed]:
    """A feed whose start is fixed when this returns: what is published then is in it.

    Raises TopicMissingError, KafkaError and TimeoutError.
    """
    deadline = settings.kafka_request_timeout
    partitions = await _partitions(settings, topic)
    consumer = AIOKafkaConsumer(
        **connection_options(settings),
        enable_auto_commit=False,
        auto_offset_reset="earliest" if from_beginning else "latest",
        isolation_level="read_committed",
        fetch_max_wait_ms=int(settings.kafka_fetch_wait * 1000),
    )
    try:
        async with asyncio.timeout(deadline):
            await consumer.start()
            consumer.assign(partitions)
            if from_beginning:
                await consumer.seek_to_beginning(*partitions)
            else:
                await consumer.seek_to_end(*partitions)
        yield Feed(consumer)
    finally:
        async with asyncio.timeout(deadline):
            await consumer.stop()


async def _partitions(settings: Settings, topic: str) -> list[TopicPartition]:
    admin = AIOKafkaAdminClient(**connection_options(settings))
    async with asyncio.timeout(settings.kafka_request_timeout):
        try:
            await admin.start()
            if topic not in await admin.list_topics():
                raise TopicMissingError(topic)
            (described,) = await admin.describe_topics([topic])
        finally:
            await admin.close()
    return [TopicPartition(topic, each["partition"]) for each in described["partitions"]]
