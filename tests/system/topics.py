"""The topics, through aiokafka alone: publish, read to the end, read commits."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeAlias

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from confluent_kafka import Producer

from tests.servers.waiting import eventually

PARTITIONS = 6
NAMES = (
    "detections",
    "authentications",
    "notifications",
    "presence",
    "connector-calls",
    "dead-letters",
)
SOURCES = {"trigger": "detections", "connector": "connector-calls"}
DEADLINE = 200.0

Record: TypeAlias = "ConsumerRecord[bytes, bytes]"


class Message(NamedTuple):
    """A record to publish."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]] = ()
    timestamp_ms: int | None = None


@asynccontextmanager
async def administration(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    """A client that creates and deletes topics."""
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


# Publishes a message; what it returns is done when the brokers have it.
Send: TypeAlias = Callable[[Message], Awaitable["asyncio.Future[object]"]]


class TopicSet:
    """All topics under one prefix on one broker, and the roles' groups under another.

    With `committed`, the records of transactions that were aborted are not seen.
    """

    def __init__(
        self,
        bootstrap: str,
        prefix: str,
        groups: str,
        partitions: int = PARTITIONS,
        *,
        committed: bool = False,
    ) -> None:
        self.bootstrap = bootstrap
        self._prefix = prefix
        self._groups = groups
        self._partitions = partitions
        self._isolation = "read_committed" if committed else "read_uncommitted"

    def name(self, short: str) -> str:
        """The full name of a topic."""
        return self._prefix + short

    async def create(self, *, broker_time: bool = False) -> None:
        """Create all topics; with `broker_time` the broker sets the timestamps of records."""
        kind = {"message.timestamp.type": "LogAppendTime" if broker_time else "CreateTime"}
        topics = [NewTopic(self.name(n), self._partitions, 1, topic_configs=kind) for n in NAMES]
        async with administration(self.bootstrap) as admin:
            await admin.create_topics(topics)

    async def recreate(self, *shorts: str) -> None:
        """Delete topics, and create them again (unless a client's request has)."""
        names = [self.name(short) for short in shorts]
        topics = [NewTopic(name, self._partitions, 1) for name in names]
        async with administration(self.bootstrap) as admin:

            async def is_deleted() -> bool:
                return not set(names) & set(await admin.list_topics())

            async def are_made() -> bool:
                answer = await admin.create_topics(topics)
                return all(error[1] in (0, 36) for error in answer.topic_errors)

            await admin.delete_topics(names)
            await eventually(is_deleted)
            await eventually(are_made)

    def mention(self, *shorts: str) -> None:
        """The embedded broker makes a topic when it is mentioned."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for short in shorts:
            producer.list_topics(self.name(short), timeout=60.0)

    async def publish(self, messages: Iterable[Message], short: str = "detections") -> int:
        """Publish in order, with the messages' keys. Returns their number."""
        count = 0
        async with self.publishing(short) as send:
            for message in messages:
                await send(message)
                count += 1
        return count

    @asynccontextmanager
    async def publishing(self, short: str = "detections") -> AsyncIterator[Send]:
        """A sender of single messages; all are acknowledged at the end of the context."""
        open_: list[asyncio.Future[object]] = []

        async def send(message: Message) -> asyncio.Future[object]:
            sent: asyncio.Future[object] = await producer.send(
                self.name(short),
                message.value,
                key=message.key,
                headers=list(message.headers),
                timestamp_ms=message.timestamp_ms,
            )
            open_.append(sent)
            if len(open_) >= 20_000:
                await asyncio.gather(*open_)
                open_.clear()
            return sent

        async with AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            linger_ms=20,
            max_batch_size=200_000,
            enable_idempotence=True,
        ) as producer:
            yield send
            await asyncio.gather(*open_)

    async def read(self, short: str) -> list[Record]:
        """Every record of a topic, partition by partition, in order of offset."""
        records: list[Record] = []
        async with self._reader() as consumer:
            ends = await self._ends(consumer, short)
            consumer.assign(list(ends))
            # All at once: each by itself waits for the fetch of those before.
            await consumer.seek_to_beginning(*ends)
            async with asyncio.timeout(DEADLINE):
                while any([await consumer.position(tp) < end for tp, end in ends.items()]):
                    for batch in (await consumer.getmany(timeout_ms=200)).values():
                        records += batch
        return sorted(records, key=lambda record: (record.partition, record.offset))

    async def bodies(self, short: str) -> list[dict[str, Any]]:
        """The decoded values of a topic's records."""
        return [json.loads(record.value or b"") for record in await self.read(short)]

    async def count(self, short: str) -> int:
        """How many records a topic holds."""
        async with self._reader() as consumer:
            return sum((await self._ends(consumer, short)).values())

    async def until(
        self, short: str, count: int, check: Callable[[], object] = lambda: None
    ) -> None:
        """Wait until a topic holds so many records; `check` may raise meanwhile."""
        async with self._reader() as consumer:

            async def is_enough() -> bool:
                check()
                return sum((await self._ends(consumer, short)).values()) >= count

            await eventually(is_enough, deadline=DEADLINE, what=f"{count} in {short}")

    async def lag(self, role: str = "trigger") -> int:
        """How many records the group has yet to commit."""
        return await self.count(SOURCES[role]) - sum((await self.committed(role)).values())

    async def committed(self, role: str = "trigger") -> dict[int, int]:
        """The committed offsets of the role's group, by partition."""
        async with self._reader(self._groups + role) as consumer:
            ends = await self._ends(consumer, SOURCES[role])
            return {tp.partition: await consumer.committed(tp) or 0 for tp in ends}

    async def until_done(self, *roles: str) -> None:
        """Wait until each role has committed every record that can be seen now."""
        for role in roles or ("trigger",):
            ends: Counter[TopicPartition] = Counter()
            for record in await self.read(SOURCES[role]):
                # (After them there may be the ends of transactions, and what was given up.)
                ends[TopicPartition(record.topic, record.partition)] = record.offset + 1
            async with self._reader(self._groups + role) as consumer:

                async def is_done(
                    consumer: AIOKafkaConsumer = consumer, ends: Counter[TopicPartition] = ends
                ) -> bool:
                    return all([(await consumer.committed(tp) or 0) >= ends[tp] for tp in ends])

                await eventually(is_done, deadline=DEADLINE, what=f"{role} has committed all")

    def _reader(self, group: str | None = None) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=group,
            enable_auto_commit=False,
            isolation_level=self._isolation,
        )

    async def _ends(self, consumer: AIOKafkaConsumer, short: str) -> dict[TopicPartition, int]:
        topic, numbers = self.name(short), range(self._partitions)
        ends: dict[TopicPartition, int] = await consumer.end_offsets(
            [TopicPartition(topic, number) for number in numbers]
        )
        return ends
