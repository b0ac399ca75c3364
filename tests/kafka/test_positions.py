"""Positions from a store other than the group's commits, on both brokers."""

from collections.abc import Collection, Mapping

from aiokafka import TopicPartition

from engine.kafka.offsets import Position
from engine.process.settings import Settings
from tests.kafka.members import RecordedValues, member, publish_numbers, values
from tests.servers.waiting import eventually

Places = Mapping[TopicPartition, Position]


class Starts:
    """A store in which all partitions with records have one position; it notes replaced ones."""

    def __init__(self, position: Position | None) -> None:
        self.position = position
        self.stored: Places = {}

    async def load(self, partitions: Collection[TopicPartition]) -> Places:
        return {} if self.position is None else dict.fromkeys(partitions, self.position)

    async def replace(self, _old: Places, new: Places) -> bool:
        self.stored = new
        return True


async def test_a_partition_that_has_lost_its_end_is_read_from_the_new_end(
    settings: Settings, topic: str
) -> None:
    """As after an election that lost records: the topic is the same, its offsets went back."""
    await publish_numbers(settings, topic, 0, 5, b"one")
    new = Starts(None)
    async with member(settings, topic, RecordedValues().handle, starts=new):
        await eventually(lambda: new.stored)
    topic_id = next(iter(new.stored.values())).topic_id
    seen, starts = RecordedValues(), Starts(Position(9, topic_id))
    async with member(settings, topic, seen.handle, starts=starts):
        await eventually(lambda: starts.stored)
        await publish_numbers(settings, topic, 5, 3, b"one")
        await eventually(lambda: len(seen.values) >= 3)
    assert seen.values == values(5, 8)
