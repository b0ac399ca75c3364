"""The dead-letters topic, read from given offsets to the end it had when reading began."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata

from engine.cli.dead_letters.letter import Letter, read_letter
from engine.cli.dead_letters.replayed import Settled
from engine.kafka.connection import connection_options
from engine.process.settings import Settings

_POLL_SECONDS = 0.2
_LARGEST_POLL = 500


class LetterReader:
    """Reads as no member of any group, so it disturbs nobody. `partitions` may be empty."""

    def __init__(
        self, consumer: AIOKafkaConsumer | None, partitions: list[TopicPartition], deadline: float
    ) -> None:
        self.partitions = partitions
        self._consumer: Any = consumer  # None where the topic is missing: it is asked nothing
        self._deadline = deadline

    async def letters(self, starts: Mapping[int, int]) -> AsyncGenerator[list[Letter], None]:
        """Lists of letters of one partition each, in its order. `starts` by partition.

        A start behind the end (the topic was made anew) or before what is still kept is the
        beginning. Raises KafkaError, and TimeoutError when nothing comes for the deadline.
        """
        if not self.partitions:
            return
        async with asyncio.timeout(self._deadline):
            first = await self._consumer.beginning_offsets(self.partitions)
            ends = await self._consumer.end_offsets(self.partitions)
        for tp in self.partitions:
            start = starts.get(tp.partition, 0)
            self._consumer.seek(tp, start if first[tp] <= start <= ends[tp] else first[tp])
        while True:
            open_ = {tp for tp in self.partitions if await self._position(tp) < ends[tp]}
            if not open_:
                return
            for tp, records in (await self._some(open_)).items():
                yield [read_letter(record) for record in records if record.offset < ends[tp]]

    async def commit(self, settled: Mapping[int, Settled]) -> None:
        """Keep how far each partition is, under the group of the reader. Raises KafkaError."""
        async with asyncio.timeout(self._deadline):
            await self._consumer.commit(
                {
                    tp: OffsetAndMetadata(
                        settled[tp.partition].everything, settled[tp.partition].metadata
                    )
                    for tp in self.partitions
                }
            )

    async def _position(self, tp: TopicPartition) -> int:
        async with asyncio.timeout(self._deadline):
            position: int = await self._consumer.position(tp)
            return position

    async def _some(
        self, open_: set[TopicPartition]
    ) -> dict[TopicPartition, list[ConsumerRecord[bytes, bytes]]]:
        async with asyncio.timeout(self._deadline):
            while True:
                before = {tp: await self._consumer.position(tp) for tp in open_}
                fetched: dict[TopicPartition, list[ConsumerRecord[bytes, bytes]]]
                fetched = await self._consumer.getmany(
                    *open_, timeout_ms=int(_POLL_SECONDS * 1000), max_records=_LARGEST_POLL
                )
                moved = any([await self._consumer.position(tp) != before[tp] for tp in open_])
                if fetched or moved:
                    return fetched


@asynccontextmanager
async def open_reader(
    settings: Settings, topic: str, group: str | None = None
) -> AsyncIterator[LetterReader]:
    """A reader of `topic`, which may be missing. With `group` it may commit. Raises KafkaError."""
    deadline = settings.kafka_request_timeout
    partitions = await _partitions(settings, topic)
    if not partitions:
        yield LetterReader(None, [], deadline)
        return
    consumer = AIOKafkaConsumer(
        **connection_options(settings),
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    try:
        async with asyncio.timeout(deadline):
            await consumer.start()
        consumer.assign(partitions)
        yield LetterReader(consumer, partitions, deadline)
    finally:
        async with asyncio.timeout(deadline):
            await consumer.stop()


async def settled_under(
    settings: Settings, group: str, partitions: list[TopicPartition]
) -> dict[int, Settled]:
    """What `group` has committed, by partition. Raises KafkaError."""
    if not partitions:
        return {}
    async with _admin(settings) as admin:
        committed = await _committed(admin, group, partitions)
    nothing = OffsetAndMetadata(-1, "")
    kept = {tp: committed.get(tp, nothing) for tp in partitions}
    return {tp.partition: Settled.read(at.offset, at.metadata) for tp, at in kept.items()}


async def _committed(
    admin: AIOKafkaAdminClient, group: str, partitions: list[TopicPartition]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """A young cluster's first question for a group finds no coordinator yet: it is asked again."""
    while True:
        try:
            found: dict[TopicPartition, OffsetAndMetadata]
            found = await admin.list_consumer_group_offsets(group, partitions=partitions)
        except KafkaError as error:
            if not error.retriable:
                raise
        else:
            return found
        await asyncio.sleep(_POLL_SECONDS)


async def _partitions(settings: Settings, topic: str) -> list[TopicPartition]:
    async with _admin(settings) as admin:
        if topic not in await admin.list_topics():
            return []
        (described,) = await admin.describe_topics([topic])
        return [TopicPartition(topic, each["partition"]) for each in described["partitions"]]


@asynccontextmanager
async def _admin(settings: Settings) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(**connection_options(settings))
    async with asyncio.timeout(settings.kafka_request_timeout):
        try:
            await admin.start()
            yield admin
        finally:
            await admin.close()
