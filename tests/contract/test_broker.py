"""The broker's port: publisher and consumer, on the embedded broker and on Apache Kafka."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.partitioner import DefaultPartitioner

from engine.kafka.consumer import PartitionedConsumer
from engine.kafka.publisher import MessageTooLargeError, Outgoing, Publisher
from engine.kafka.worker import Records
from engine.metrics import Metrics
from engine.settings import Settings
from tests.servers.waiting import eventually

SESSION = 6.0
BATCH = 50


@pytest.fixture
def settings(broker: str, topic_prefix: str) -> Settings:
    return Settings(
        kafka_bootstrap_servers=broker,
        topic_prefix=topic_prefix,
        group_prefix=topic_prefix,
        kafka_request_timeout=20,
        kafka_session_timeout=SESSION,
    )


@pytest.fixture
def topic(topic_prefix: str) -> str:
    return f"{topic_prefix}records"


@pytest.fixture
async def publisher(settings: Settings) -> AsyncIterator[Publisher]:
    publisher = Publisher.from_settings(settings)
    await publisher.start()
    yield publisher
    await publisher.close()


class Handler:
    """Notes what it handles; waits at the gate when it is closed, fails on b"poison"."""

    def __init__(self, gate: asyncio.Event) -> None:
        self.gate = gate
        self.offsets: list[int] = []
        self.begun = 0
        self.largest = 0

    async def handle(self, records: Records) -> None:
        self.begun += 1
        self.largest = max(self.largest, len(records))
        await self.gate.wait()
        if any(record.value == b"poison" for record in records):
            raise ValueError("poisoned")
        self.offsets += [record.offset for record in records]


class Member:
    """A consumer of the test's group, running in a task."""

    def __init__(self, settings: Settings, topic: str, metrics: Metrics, **options: int) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.handlers: dict[int, list[Handler]] = {}
        self.stop = asyncio.Event()
        self.client = AIOKafkaConsumer(
            bootstrap_servers=settings.kafka_bootstrap_servers,
            group_id=f"{settings.group_prefix}group",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=int(SESSION * 1000),
            heartbeat_interval_ms=500,
            rebalance_timeout_ms=10_000,
            fetch_max_wait_ms=20,
        )
        self.consumer = PartitionedConsumer(
            consumer=self.client,
            topics=[topic],
            role="test",
            handler_for=self._handler,
            metrics=metrics,
            batch_records=options.get("batch", BATCH),
            in_flight_records=options.get("in_flight", 10 * BATCH),
            commit_interval=0.05,
            drain_timeout=5,
        )
        self.task = asyncio.create_task(self.consumer.run(self.stop))

    def _handler(self, partition: TopicPartition) -> Handler:
        handler = Handler(self.gate)
        self.handlers.setdefault(partition.partition, []).append(handler)
        return handler

    def handled(self) -> dict[int, list[int]]:
        """Offsets by partition, over all assignments of it."""
        found = {
            partition: [offset for handler in handlers for offset in handler.offsets]
            for partition, handlers in self.handlers.items()
        }
        return {partition: offsets for partition, offsets in found.items() if offsets}

    def count(self) -> int:
        """How many records were handled."""
        return sum(map(len, self.handled().values()))

    async def end(self) -> None:
        """Stop in order; raises what a handler raised."""
        self.stop.set()
        self.gate.set()
        async with asyncio.timeout(30):
            await self.task


Join = Callable[..., Member]


@pytest.fixture
async def join(settings: Settings, topic: str, publisher: Publisher) -> AsyncIterator[Join]:
    members: list[Member] = []

    def add(**options: int) -> Member:
        members.append(Member(settings, topic, Metrics(), **options))
        return members[-1]

    yield add
    for member in members:
        with suppress(ValueError):
            await member.end()


def messages(topic: str, count: int, start: int = 0) -> list[Outgoing]:
    return [
        Outgoing(topic, b"device-%d" % (number % 20), b"%d" % number, [])
        for number in range(start, start + count)
    ]


async def read(settings: Settings, topic: str, count: int) -> list[ConsumerRecord[bytes, bytes]]:
    """The first `count` records of the topic, without a group."""
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=settings.kafka_bootstrap_servers,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=20,
    )
    found: list[ConsumerRecord[bytes, bytes]] = []
    await consumer.start()
    try:
        async with asyncio.timeout(20):
            while len(found) < count:
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    found += records
    finally:
        await consumer.stop()
    return found


async def committed(settings: Settings, topic: str) -> dict[int, int]:
    """What the group has committed, by partition."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=settings.kafka_bootstrap_servers,
        group_id=f"{settings.group_prefix}group",
        enable_auto_commit=False,
    )
    await consumer.start()
    try:
        partitions = [TopicPartition(topic, number) for number in range(4)]
        consumer.assign(partitions)
        offsets = {tp.partition: await consumer.committed(tp) for tp in partitions}
    finally:
        await consumer.stop()
    return {partition: offset for partition, offset in offsets.items() if offset}


@asynccontextmanager
async def holding(*members: Member) -> AsyncIterator[None]:
    """The members' handlers wait inside the block."""
    for member in members:
        member.gate.clear()
    yield
    for member in members:
        member.gate.set()


async def test_a_device_keeps_the_partition_that_java_would_choose(
    settings: Settings, topic: str, publisher: Publisher
):
    await publisher.publish(messages(topic, 200))
    found = await read(settings, topic, 200)
    count = 4
    choose = DefaultPartitioner()
    for record in found:
        assert record.partition == choose(record.key, list(range(count)), list(range(count)))
    for partition in range(count):
        numbers = [int(r.value or b"") for r in found if r.partition == partition]
        assert numbers == sorted(numbers)


async def test_keys_values_and_headers_arrive_as_they_left(
    settings: Settings, topic: str, publisher: Publisher
):
    sent = [
        Outgoing(topic, b"k", b"v", [("id", b"\x00\xff"), ("id", b"again")]),
        Outgoing(topic, None, b"no key", []),
        Outgoing(topic, b"no value", None, []),
        Outgoing(topic, None, None, [("neither", b"")]),
    ]
    await publisher.publish(sent)
    found = await read(settings, topic, 4)
    assert {(r.key, r.value, tuple(r.headers)) for r in found} == {
        (m.key, m.value, tuple(m.headers)) for m in sent
    }


async def test_nothing_to_publish_is_no_request(publisher: Publisher):
    await publisher.publish([])


async def test_a_committed_record_is_not_read_again(
    settings: Settings, topic: str, publisher: Publisher, join: Join
):
    await publisher.publish(messages(topic, 300))
    first = join()
    await eventually(lambda: first.count() == 300, deadline=30)
    await first.end()
    done = {partition: offsets[-1] + 1 for partition, offsets in first.handled().items()}
    assert await committed(settings, topic) == done
    await publisher.publish(messages(topic, 100, start=300))
    second = join()
    await eventually(lambda: second.count() == 100, deadline=30)
    await second.end()
    for partition, offsets in second.handled().items():
        assert offsets[0] == done.get(partition, 0)
        assert offsets == sorted(set(offsets))


async def test_a_full_partition_is_paused_and_goes_on(topic: str, publisher: Publisher, join: Join):
    await publisher.publish(
        [Outgoing(topic, b"one device", b"%d" % number, []) for number in range(1000)]
    )
    member = join(batch=20, in_flight=100)
    async with holding(member):
        await eventually(lambda: member.client.paused() if member.handlers else None, deadline=30)
        workers = member.consumer._workers.values()
        assert max(worker.pending for worker in workers) < 100 + 20
        assert member.count() == 0
    await eventually(lambda: member.count() == 1000, deadline=30)
    (offsets,) = member.handled().values()
    assert offsets == list(range(1000))
    handlers = (handler for each in member.handlers.values() for handler in each)
    assert max(handler.largest for handler in handlers) <= 20


async def test_what_a_handler_raises_stops_the_consumer_and_is_not_committed(
    settings: Settings, topic: str, publisher: Publisher, join: Join
):
    await publisher.publish(messages(topic, 40))
    member = join()
    await eventually(lambda: member.count() == 40, deadline=30)
    await publisher.publish([Outgoing(topic, b"device-1", b"poison", [])])
    with pytest.raises(ValueError, match="poisoned"):
        async with asyncio.timeout(30):
            await member.task
    done = {partition: offsets[-1] + 1 for partition, offsets in member.handled().items()}
    assert await committed(settings, topic) == done


async def test_a_batch_in_hand_is_finished_at_the_end(
    settings: Settings, topic: str, publisher: Publisher, join: Join
):
    await publisher.publish([Outgoing(topic, b"d", b"%d" % number, []) for number in range(200)])
    member = join(batch=10)
    member.gate.clear()
    await eventually(
        lambda: sum(h.begun for each in member.handlers.values() for h in each), deadline=30
    )
    member.stop.set()
    await member.end()
    (offsets,) = member.handled().values()
    assert 0 < len(offsets) < 200
    assert list((await committed(settings, topic)).values()) == [len(offsets)]


class TestRealOnly:
    """A second member, and messages that a topic refuses: the embedded broker knows neither."""

    @pytest.fixture
    def broker(self, kafka_bootstrap: str) -> str:
        return kafka_bootstrap

    async def test_a_message_that_the_topic_refuses_is_named(
        self, topic: str, publisher: Publisher
    ):
        large = Outgoing(topic, b"k", b"x" * 2_000_000, [])
        with pytest.raises(MessageTooLargeError) as caught:
            await publisher.publish([Outgoing(topic, b"k", b"small", []), large])
        assert caught.value.message is large

    async def test_a_revoked_partition_finishes_and_commits_and_nothing_is_lost_or_doubled(
        self, topic: str, publisher: Publisher, join: Join
    ):
        await publisher.publish(messages(topic, 400))
        first = join(batch=10)
        await eventually(lambda: first.count() == 400, deadline=30)
        second = join(batch=10)
        sent = 400

        async def shared() -> bool:
            nonlocal sent
            await publisher.publish(messages(topic, 50, start=sent))
            sent += 50
            return second.count() > 0

        await eventually(shared, deadline=30, what="the second member has its share")
        await eventually(lambda: first.count() + second.count() >= sent, deadline=30)
        seen = [
            (partition, offset)
            for member in (first, second)
            for partition, offsets in member.handled().items()
            for offset in offsets
        ]
        assert len(seen) == len(set(seen)) == sent

    async def test_a_lost_partition_is_abandoned_and_not_committed(
        self, settings: Settings, topic: str, publisher: Publisher, join: Join
    ):
        await publisher.publish(messages(topic, 20))
        member = join()
        await eventually(lambda: member.count() == 20, deadline=30)
        before = await eventually(
            lambda: _when_complete(settings, topic, 20), deadline=10, what="all committed"
        )
        member.gate.clear()
        await publisher.publish(messages(topic, 20, start=20))
        handlers = [handler for each in member.handlers.values() for handler in each]
        await eventually(lambda: sum(h.begun for h in handlers) > len(before), deadline=10)
        # What the coordinator tells a member that was silent for longer than its session.
        member.client._coordinator.reset_generation()
        await eventually(
            lambda: all(len(each) > 1 for each in member.handlers.values()),
            deadline=30,
            what="a new assignment",
        )
        assert all(handler.offsets == sorted(handler.offsets) for handler in handlers)
        assert sum(len(handler.offsets) for handler in handlers) == 20
        assert await committed(settings, topic) == before
        member.gate.set()
        await eventually(lambda: member.count() == 40, deadline=30)


async def _when_complete(settings: Settings, topic: str, count: int) -> dict[int, int] | None:
    offsets = await committed(settings, topic)
    return offsets if sum(offsets.values()) == count else None
