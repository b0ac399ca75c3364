"""Reading a topic beside the roles, on both brokers: every record up to an offset, and no more."""

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.errors import OffsetOutOfRangeError

from engine.kafka.topic_reader import (
    OffsetRange,
    Offsets,
    TopicReader,
    open_topic_reader,
    partitions_of,
)
from engine.process.settings import Settings
from tests.kafka.members import on_real_broker, publish_numbers


async def fill(settings: Settings, topic: str, begin: int, count: int) -> list[TopicPartition]:
    """Publish to all of the four partitions; the partitions."""
    await publish_numbers(settings, topic, begin, count)
    return await partitions_of(settings, [topic])


async def read(
    reader: TopicReader, begins: Offsets, ends: Offsets
) -> dict[TopicPartition, list[int]]:
    """The offsets that were read, by partition."""
    found: dict[TopicPartition, list[int]] = {}
    ranges = {tp: OffsetRange(begins[tp], end) for tp, end in ends.items()}
    async for records in reader.records_until(ranges):
        for record in records:
            place = TopicPartition(record.topic, record.partition)
            found.setdefault(place, []).append(record.offset)
    return found


async def test_every_record_up_to_the_end_is_read_once_and_as_often_as_requested(
    settings: Settings, topic: str
) -> None:
    partitions = await fill(settings, topic, 0, 3000)
    async with open_topic_reader(settings, missing="error") as reader:
        ranges = await reader.ranges(partitions)
        assert sum(end for _, end in ranges.values()) == 3000
        await fill(settings, topic, 3000, 1000)  # behind the end: not read
        begins = {tp: begin for tp, (begin, _) in ranges.items()}
        ends = {tp: end for tp, (_, end) in ranges.items()}
        for _ in range(2):
            found = await read(reader, begins, ends)
            assert found == {tp: list(range(end)) for tp, end in ends.items()}
        later = {tp: end - 3 for tp, end in ends.items()}
        assert await read(reader, later, ends) == {
            tp: [e - 3, e - 2, e - 1] for tp, e in ends.items()
        }
        first = min(partitions)
        assert await read(reader, ends | {first: 0}, ends) == {first: list(range(ends[first]))}


@on_real_broker
async def test_records_that_are_deleted_are_skipped_or_an_error(
    settings: Settings, topic: str, admin: AIOKafkaAdminClient
) -> None:
    """On the real broker: the embedded one deletes nothing."""
    partitions = await fill(settings, topic, 0, 400)
    first = min(partitions)
    await admin.delete_records({first: RecordsToDelete(before_offset=10)})
    async with open_topic_reader(settings, missing="skip") as reader:
        range_ = (await reader.ranges([first]))[first]
        assert range_ == OffsetRange(10, range_.end)
        found = await read(reader, {first: 0}, {first: range_.end})
        assert found == {first: list(range(10, range_.end))}
    async with open_topic_reader(settings, missing="error") as reader:
        with pytest.raises(OffsetOutOfRangeError):
            await read(reader, {first: 0}, {first: range_.end})
