"""Topics read once from the beginning to given offsets, as no member of any group."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from engine.kafka.cluster_metadata import topic_ids
from engine.kafka.connection import connection_options
from engine.process.settings import Settings

_POLL_SECONDS = 0.2

Offsets = Mapping[TopicPartition, int]


class TopicReader:
    """Reads partitions; at most what one fetch brings of each is in memory."""

    def __init__(self, consumer: AIOKafkaConsumer, deadline: float) -> None:
        self._consumer = consumer
        self._deadline = deadline

    async def bounds(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """First kept offset and end of each. Raises KafkaError or TimeoutError."""
        if not partitions:
            return {}
        async with asyncio.timeout(self._deadline):
            begins = await self._consumer.beginning_offsets(list(partitions))
            ends = await self._consumer.end_offsets(list(partitions))
        return {tp: (begins[tp], ends[tp]) for tp in partitions}

    async def ids(self, topics: Collection[str]) -> dict[str, str]:
        """Of those that exist, where the brokers know ids. Raises KafkaError, OSError or
        TimeoutError."""
        async with asyncio.timeout(self._deadline):
            return await topic_ids(self._consumer._client, topics)  # noqa: SLF001

    async def records(
        self, begins: Offsets, ends: Offsets
    ) -> AsyncGenerator[list[ConsumerRecord[bytes, bytes]], None]:
        """Every record from `begins` up to `ends`, in lists of one partition each.

        Raises KafkaError, and TimeoutError when nothing comes for the deadline.
        """
        open_ = {tp for tp in ends if begins[tp] < ends[tp]}
        if not open_:
            return
        self._consumer.assign(list(open_))
        for tp in open_:
            self._consumer.seek(tp, begins[tp])
        positions = {tp: begins[tp] for tp in open_}
        while open_:
            for tp, records in (await self._some(open_, positions)).items():
                yield [record for record in records if record.offset < ends[tp]]
            done = {tp for tp in open_ if positions[tp] >= ends[tp]}
            if done:
                self._consumer.pause(*done)
                open_ -= done

    async def _some(
        self, open_: set[TopicPartition], positions: dict[TopicPartition, int]
    ) -> dict[TopicPartition, list[ConsumerRecord[bytes, bytes]]]:
        """What comes next; `positions` moves, also over what holds no record for us."""
        async with asyncio.timeout(self._deadline):
            while True:
                fetched: dict[TopicPartition, list[ConsumerRecord[bytes, bytes]]]
                fetched = await self._consumer.getmany(*open_, timeout_ms=int(_POLL_SECONDS * 1000))
                moved = False
                for tp in open_:
                    position = await self._consumer.position(tp)
                    moved = moved or position != positions[tp]
                    positions[tp] = position
                if moved:
                    return fetched


@asynccontextmanager
async def open_topics(settings: Settings) -> AsyncIterator[TopicReader]:
    """A reader of any topic. Raises KafkaError or TimeoutError."""
    deadline = settings.kafka_request_timeout
    consumer = AIOKafkaConsumer(
        **connection_options(settings),
        enable_auto_commit=False,
        # A record that goes while it is read is missed in the count: better an error.
        auto_offset_reset="none",
        isolation_level="read_committed",
    )
    try:
        async with asyncio.timeout(deadline):
            await consumer.start()
        yield TopicReader(consumer, deadline)
    finally:
        async with asyncio.timeout(deadline):
            await consumer.stop()


async def present(
    settings: Settings, partitions: Collection[TopicPartition]
) -> set[TopicPartition]:
    """Those of the partitions that Kafka has. Raises KafkaError or TimeoutError."""
    async with asyncio.timeout(settings.kafka_request_timeout):
        admin = AIOKafkaAdminClient(**connection_options(settings))
        try:
            await admin.start()
            topics = {tp.topic for tp in partitions} & set(await admin.list_topics())
            described = await admin.describe_topics(sorted(topics)) if topics else []
        finally:
            await admin.close()
    known = {
        TopicPartition(topic["topic"], each["partition"])
        for topic in described
        for each in topic["partitions"]
    }
    return known & set(partitions)
