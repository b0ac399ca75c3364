"""Reads topics for commands, outside any consumer group, so that the roles are not disturbed."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import chain
from math import isfinite
from operator import attrgetter
from typing import Literal, NamedTuple

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.structs import OffsetAndMetadata

from engine.kafka.client import (
    FETCH_MS,
    REQUEST_SECONDS,
    KafkaCluster,
    connection_options,
    stop_consumer,
)
from engine.process.settings import Settings

_POLL_MS = 200
_LARGEST_LIST = 500  # records, unless the caller sets another length

Offsets = Mapping[TopicPartition, int]
FetchedRecords = dict[TopicPartition, list[ConsumerRecord[bytes, bytes]]]


class OffsetRange(NamedTuple):
    """The offset of a partition's first record, and the offset after its last one."""

    begin: int
    end: int


@dataclass(frozen=True)
class TopicReader:
    """Reads partitions from given offsets, in lists of a bounded number of records."""

    consumer: AIOKafkaConsumer

    async def ranges(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetRange]:
        """The offsets that each partition has now. Raises KafkaError or TimeoutError."""
        if not partitions:
            return {}
        async with asyncio.timeout(REQUEST_SECONDS):
            begins = await self.consumer.beginning_offsets(list(partitions))
            ends = await self.consumer.end_offsets(list(partitions))
        return {tp: OffsetRange(begins[tp], ends[tp]) for tp in partitions}

    async def first_since(
        self, ranges: Mapping[TopicPartition, OffsetRange], instant: float
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition that is not empty with a timestamp of `instant` (epoch
        s) or later. Raises KafkaError or TimeoutError.

        A partition without such a record is left out; with the embedded broker, which does not know
        timestamps, all are.
        """
        partitions = [tp for tp, (begin, end) in ranges.items() if begin < end]
        if not partitions or not isfinite(instant):
            return {}
        times = dict.fromkeys(partitions, max(0, round(instant * 1000)))
        async with asyncio.timeout(REQUEST_SECONDS):
            found = await self.consumer.offsets_for_times(times)
        return {tp: at.offset for tp, at in found.items() if at is not None}

    async def records_until(
        self, ranges: Mapping[TopicPartition, OffsetRange]
    ) -> AsyncGenerator[list[ConsumerRecord[bytes, bytes]], None]:
        """Every record of the ranges, in lists of one partition each, in its order.

        Raises KafkaError, and TimeoutError if no record arrives within the deadline.
        """
        positions = {tp: begin for tp, (begin, _) in ranges.items()}
        self._assign(positions)
        while open_ := {tp for tp, position in positions.items() if position < ranges[tp].end}:
            for tp, records in (await self._progress(open_, positions)).items():
                if within := _before(records, ranges[tp].end):
                    yield within

    async def follow(
        self, begins: Offsets
    ) -> AsyncGenerator[list[ConsumerRecord[bytes, bytes]], None]:
        """Every record from `begins` on. What is fetched together is a list in order of time.

        Never ends. Raises KafkaError.
        """
        self._assign(begins)
        while True:
            fetched = (await self.consumer.getmany(timeout_ms=_POLL_MS)).values()
            yield sorted(chain.from_iterable(fetched), key=attrgetter("timestamp"))

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit offsets of partitions that are being read, for the group of the reader.

        Raises KafkaError or TimeoutError.
        """
        async with asyncio.timeout(REQUEST_SECONDS):
            await self.consumer.commit(dict(offsets))

    def _assign(self, begins: Offsets) -> None:
        self.consumer.assign(list(begins))
        for tp, offset in begins.items():
            self.consumer.seek(tp, offset)

    async def _progress(
        self, partitions: set[TopicPartition], positions: dict[TopicPartition, int]
    ) -> FetchedRecords:
        """Fetch until a position moves. It moves over control records and gaps too."""
        async with asyncio.timeout(REQUEST_SECONDS):
            while True:
                fetched: FetchedRecords
                fetched = await self.consumer.getmany(*partitions, timeout_ms=_POLL_MS)
                moved = {tp: await self.consumer.position(tp) for tp in partitions}
                if any(positions[tp] != moved[tp] for tp in partitions):
                    positions.update(moved)
                    return fetched


def _before(
    records: list[ConsumerRecord[bytes, bytes]], end: int
) -> list[ConsumerRecord[bytes, bytes]]:
    """The records of a partition before an offset."""
    if not records or records[-1].offset < end:
        return records
    return [record for record in records if record.offset < end]


@asynccontextmanager
async def open_topic_reader(
    settings: Settings,
    *,
    missing: Literal["skip", "error"],
    group: str | None = None,
    largest_list: int = _LARGEST_LIST,
) -> AsyncIterator[TopicReader]:
    """A reader of any topic. Raises KafkaError or TimeoutError.

    `missing` says how to handle records that are deleted before they are read. With `group` the
    reader may commit. Lists have at most `largest_list` records.
    """
    consumer = AIOKafkaConsumer(
        **connection_options(settings),
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="none" if missing == "error" else "earliest",
        isolation_level="read_committed",
        fetch_max_wait_ms=FETCH_MS,
        max_poll_records=largest_list,
    )
    try:
        async with asyncio.timeout(REQUEST_SECONDS):
            await consumer.start()
        yield TopicReader(consumer)
    finally:
        await stop_consumer(consumer, REQUEST_SECONDS)


async def partitions_of(settings: Settings, topics: Collection[str]) -> list[TopicPartition]:
    """The partitions of those topics that exist. Raises KafkaError, OSError or TimeoutError."""
    async with KafkaCluster(settings) as cluster:
        found = await cluster.visible(topics)
    return [
        TopicPartition(name, number) for name in sorted(found) for number in found[name].partitions
    ]
