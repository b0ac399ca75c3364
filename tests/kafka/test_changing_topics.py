"""Topics that grow, are recreated, or lose records to retention, while the role runs or not."""

import asyncio
from functools import partial

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.records_to_delete import RecordsToDelete

from engine.kafka.client import KafkaCluster
from engine.kafka.offsets import Position
from engine.process.metrics import Metrics
from engine.process.settings import Settings
from tests.kafka.members import (
    ROLE,
    RecordedValues,
    committed,
    member,
    on_real_broker,
    publish_numbers,
    values,
)
from tests.servers.waiting import eventually
from tests.system.topics import TopicSet

pytestmark = on_real_broker


@pytest.fixture
async def made(admin: AIOKafkaAdminClient, topic: str) -> str:
    await admin.create_topics([NewTopic(topic, 1, 1)])
    return topic


def all_of(seen: RecordedValues, begin: int, end: int) -> bool:
    return set(values(begin, end)) <= set(seen.values)


def skipped(metrics: Metrics) -> float:
    labels = {"role": ROLE, "cause": "retention"}
    return metrics.registry.get_sample_value("proximity_records_skipped_total", labels) or 0


def logged(capsys: pytest.CaptureFixture[str], event: str) -> list[str]:
    return [line for line in capsys.readouterr().out.splitlines() if event in line]


async def test_new_partitions_are_read_from_their_beginning(
    settings: Settings, admin: AIOKafkaAdminClient, made: str
) -> None:
    await publish_numbers(settings, made, 0, 50)
    seen = RecordedValues()
    async with member(settings, made, seen.handle) as one:
        await eventually(partial(all_of, seen, 0, 50))
        await admin.create_partitions({made: NewPartitions(3)})
        await publish_numbers(settings, made, 50, 100)
        await eventually(partial(all_of, seen, 50, 150))
        assert one.partitions == 3
    assert sorted(seen.values) == values(0, 150)


@pytest.mark.parametrize("count", [20, 300], ids=["shorter", "outgrown"])
async def test_a_topic_recreated_while_stopped_is_read_completely(
    settings: Settings, broker: str, made: str, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    await publish_numbers(settings, made, 0, 100)
    first, second = RecordedValues(), RecordedValues()
    async with member(settings, made, first.handle):
        await eventually(partial(all_of, first, 0, 100))
    await TopicSet(broker, "", "", partitions=1).recreate(made)
    await publish_numbers(settings, made, 1000, count)
    # The brokers forget what a deleted topic's groups have committed, unless a member commits
    # once more before it sees that: as here.
    await commit(settings, made, Position(100, "0" * 32))
    async with member(settings, made, second.handle):
        await eventually(partial(all_of, second, 1000, 1000 + count))
    assert second.values == values(1000, 1000 + count)
    assert logged(capsys, "the topic is another one")


async def commit(settings: Settings, topic: str, position: Position) -> None:
    async with AIOKafkaConsumer(
        bootstrap_servers=settings.kafka_bootstrap_servers,
        group_id=f"{settings.group_prefix}{ROLE}",
        enable_auto_commit=False,
    ) as consumer:
        here = TopicPartition(topic, 0)
        consumer.assign([here])
        await consumer.commit({here: position.to_commit()})


async def test_a_partition_that_has_lost_its_end_is_read_from_the_new_end(
    settings: Settings, made: str
) -> None:
    """As after an election that lost records: the topic is the same, its offsets went back."""
    await publish_numbers(settings, made, 0, 5)
    async with KafkaCluster(settings) as cluster:
        ids = await cluster.topic_ids([made, f"{made}.not"])
    assert list(ids) == [made]
    await commit(settings, made, Position(9, ids[made]))
    seen = RecordedValues()
    async with member(settings, made, seen.handle) as one:
        await eventually(lambda: one.partitions == 1)
        await publish_numbers(settings, made, 5, 3)
        await eventually(lambda: len(seen.values) >= 3)
    assert seen.values == values(5, 8)


async def delete_before(admin: AIOKafkaAdminClient, topic: str, offset: int) -> None:
    """Delete records, as retention does."""
    await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=offset)})


async def test_records_deleted_by_retention_while_running_are_reported(
    settings: Settings, admin: AIOKafkaAdminClient, made: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A fetch has at most 1 MiB, so most records are not fetched when they are deleted."""
    seen, proceed, metrics = RecordedValues(), asyncio.Event(), Metrics()

    async def wait(partition: TopicPartition, records: list) -> None:
        await proceed.wait()
        await seen.handle(partition, records)

    async with member(settings, made, wait, metrics=metrics) as one:
        await eventually(lambda: one.partitions == 1)
        await publish_numbers(settings, made, 0, 1000, padding=5000)
        await eventually(lambda: one.pending >= 100)
        await delete_before(admin, made, 700)
        proceed.set()
        await eventually(lambda: seen.values[-1:] == [b"000999" + b" " * 5000])
        numbers = [int(each) for each in seen.values]
        assert numbers == sorted(set(numbers))
        assert set(range(700, 1000)) <= set(numbers)
        assert skipped(metrics) == 1000 - len(numbers) > 0
    assert logged(capsys, "records are gone that were never read")
    assert await committed(settings, made, 1) == [1000]
