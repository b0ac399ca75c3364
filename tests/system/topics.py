"""The topics, through aiokafka alone: publish, read to the end, read commits."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TypeAlias

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.servers.waiting import eventually
from tests.system.traffic import Message

PARTITIONS = 6
NAMES = (
    "detections",
    "authentications",
    "notifications",
    "presence",
    "connector-calls",
    "dead-letters",
)
DEADLINE = 90.0

Record: TypeAlias = "ConsumerRecord[bytes, bytes]"


class TopicSet:
    """All topics under one prefix on one broker, and the trigger's consumer group."""

    isolation = "read_uncommitted"

    def __init__(
        self,
        bootstrap: str,
        prefix: str,
        group: str,
        partitions: int = PARTITIONS,
        source: str = "detections",
    ) -> None:
        self._partitions = partitions
        self._bootstrap = bootstrap
        self._prefix = prefix
        self._group = group
        self._source = source

    def name(self, short: str) -> str:
        """The full name of a topic."""
        return self._prefix + short

    async def create(self, *, broker_time: bool = False) -> None:
        """Create all topics; with `broker_time` the broker sets the timestamps of records."""
        kind = {"message.timestamp.type": "LogAppendTime" if broker_time else "CreateTime"}
        topics = [NewTopic(self.name(n), self._partitions, 1, topic_configs=kind) for n in NAMES]
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        await admin.start()
        try:
            await admin.create_topics(topics)
        finally:
            await admin.close()

    async def publish(self, messages: Iterable[Message]) -> None:
        """Publish detections in order, with their keys."""
        async with self.publishing() as send:
            for message in messages:
                await send(message)

    @asynccontextmanager
    async def publishing(self) -> AsyncIterator["Send"]:
        """A sender of single messages; all are acknowledged at the end of the context."""
        async with AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            linger_ms=20,
            max_batch_size=200_000,
            enable_idempotence=True,
        ) as producer:
            send = Send(producer, self.name("detections"))
            yield send
            await send.settle()

    async def read(self, short: str) -> list[Record]:
        """Every record of a topic, partition by partition, in order of offset."""
        records: list[Record] = []
        async with self._reader() as consumer:
            ends = await self._ends(consumer, short)
            consumer.assign(list(ends))
            for tp in ends:
                await consumer.seek_to_beginning(tp)
            async with asyncio.timeout(DEADLINE):
                while any([await consumer.position(tp) < end for tp, end in ends.items()]):
                    for batch in (await consumer.getmany(timeout_ms=200)).values():
                        records += batch
        return sorted(records, key=lambda record: (record.partition, record.offset))

    async def count(self, short: str) -> int:
        """How many records a topic holds."""
        async with self.counting(short) as count:
            return await count()

    @asynccontextmanager
    async def counting(self, short: str) -> AsyncIterator[Callable[[], Awaitable[int]]]:
        """A function that counts the records of a topic quickly."""
        async with self._reader() as consumer:

            async def count() -> int:
                return sum((await self._ends(consumer, short)).values())

            yield count

    async def lag(self) -> int:
        """How many records the group has yet to commit."""
        return await self.count(self._source) - sum((await self.committed()).values())

    async def committed(self) -> dict[int, int]:
        """The committed offsets of the group, by partition."""
        async with self._reader(self._group) as consumer:
            ends = await self._ends(consumer, self._source)
            return {tp.partition: await consumer.committed(tp) or 0 for tp in ends}

    async def until_done(self, deadline: float = DEADLINE) -> None:
        """Wait until every record that the group reads is committed."""
        async with self._reader(self._group) as consumer:
            ends = await self._ends(consumer, self._source)

            async def done() -> bool:
                committed = [await consumer.committed(tp) or 0 for tp in ends]
                return committed == list(ends.values())

            await eventually(done, deadline=deadline, what="all is committed")

    def _reader(self, group: str | None = None) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=group,
            enable_auto_commit=False,
            isolation_level=self.isolation,
        )

    async def _ends(self, consumer: AIOKafkaConsumer, short: str) -> dict[TopicPartition, int]:
        topic, numbers = self.name(short), range(self._partitions)
        ends: dict[TopicPartition, int] = await consumer.end_offsets(
            [TopicPartition(topic, number) for number in numbers]
        )
        return ends


class Send:
    """Publishes a message a call; waits for acknowledgements only when many are open."""

    def __init__(self, producer: AIOKafkaProducer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._open: list[asyncio.Future[object]] = []

    async def __call__(self, message: Message) -> None:
        headers = [("case", str(message.case).encode())]
        future = await self._producer.send(
            self._topic, message.value, key=message.key, headers=headers
        )
        self._open.append(future)
        if len(self._open) >= 20_000:
            await self.settle()

    async def settle(self) -> None:
        """Wait until all sent messages are acknowledged."""
        await asyncio.gather(*self._open)
        self._open.clear()
