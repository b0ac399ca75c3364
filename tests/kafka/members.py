"""Members of a consumer group that record the handled values."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from engine.kafka.consumer import PartitionedConsumer
from engine.kafka.offsets import Position
from engine.kafka.producer import Outgoing, Publisher
from engine.kafka.workers import PartitionWorker, Records
from engine.process.lifecycle import cancel
from engine.process.metrics import Metrics
from engine.process.settings import Settings
from engine.process.settings_sources import load_settings

ROLE = "contract"
on_real_broker = pytest.mark.parametrize("broker", ["kafka_bootstrap"], indirect=True)
Handle = Callable[[TopicPartition, Records], Awaitable[None]]


class RecordedValues:
    """The handled records by partition, in the order in which they finished."""

    def __init__(self) -> None:
        self.batches: list[tuple[TopicPartition, Records]] = []

    async def handle(self, partition: TopicPartition, records: Records) -> None:
        """Record the values; a test may wrap this handler."""
        self.batches.append((partition, records))

    @property
    def values(self) -> list[bytes]:
        """All values; within a partition in order."""
        return [record.value or b"" for _, records in self.batches for record in records]

    def offsets(self, partition: int) -> list[int]:
        """The offsets that were handled of one partition."""
        batches = [records for tp, records in self.batches if tp.partition == partition]
        return [record.offset for records in batches for record in records]


class HandlingWorker(PartitionWorker):
    """Handles each batch with `handle`."""

    def __init__(
        self,
        handle: Handle,
        batch_records: int,
        partition: TopicPartition,
        begin: Position,
        on_progress: Callable[[], None],
    ) -> None:
        self._handle = handle
        super().__init__(partition, begin, on_progress, batch_records)

    async def handle(self, batch: Records) -> None:
        await self._handle(self.partition, batch)
        self._position = self.position._replace(offset=batch[-1].offset + 1)


class Member(NamedTuple):
    """A running consumer."""

    consumer: PartitionedConsumer
    task: asyncio.Task[None]

    @property
    def pending(self) -> int:
        """The records that are fetched and not done."""
        return sum(each.worker.pending for each in self.consumer.partitions.values())

    @property
    def partitions(self) -> int:
        """The number of owned partitions."""
        return len(self.consumer.partitions)


@asynccontextmanager
async def member(
    settings: Settings,
    topic: str,
    handle: Handle,
    metrics: Metrics | None = None,
    in_flight: int | None = None,
    further: Sequence[str] = (),
) -> AsyncIterator[Member]:
    """A member that is stopped in order unless it has ended. Raises the errors of its run."""
    size, stop = settings.batch_records, asyncio.Event()
    consumer = PartitionedConsumer(
        settings=settings,
        topics=[topic, *further],
        role=ROLE,
        worker_for=partial(HandlingWorker, handle, size),
        metrics=metrics or Metrics(),
        batch_records=size,
        in_flight_records=in_flight or 4 * size,
    )
    task = asyncio.create_task(consumer.run(stop))
    try:
        yield Member(consumer, task)
        stop.set()
        async with asyncio.timeout(90):
            await task
    finally:
        await cancel([task])


def settings_for(broker: str, prefix: str, **more: float) -> Settings:
    """Settings of a member that notices an end quickly."""
    quick = {"kafka_session_timeout": 4, "drain_timeout": 5}
    names = {"kafka_bootstrap_servers": broker, "group_prefix": prefix, "topic_prefix": prefix}
    return load_settings(None, **names, **(quick | more))


def values(begin: int, end: int) -> list[bytes]:
    """The values that `publish_numbers` publishes."""
    return [b"%06d" % n for n in range(begin, end)]


async def publish_numbers(
    settings: Settings,
    topic: str,
    begin: int,
    count: int,
    key: bytes | None = None,
    padding: int = 0,
) -> None:
    """Publish numbers, with spaces behind, under one key, or under keys in all partitions."""
    publisher = Publisher(settings)
    await publisher.start()
    try:
        await publisher.publish(
            [
                Outgoing(topic, key or b"%d" % (n % 40), b"%06d" % n + b" " * padding, [])
                for n in range(begin, begin + count)
            ]
        )
    finally:
        await publisher.close()


async def committed(settings: Settings, topic: str, partitions: int = 4) -> list[int]:
    """The committed offsets of the group, by partition; 0 without a commit."""
    async with AIOKafkaConsumer(
        bootstrap_servers=settings.kafka_bootstrap_servers,
        group_id=f"{settings.group_prefix}{ROLE}",
        enable_auto_commit=False,
    ) as consumer:
        places = [TopicPartition(topic, number) for number in range(partitions)]
        return [await consumer.committed(place) or 0 for place in places]
