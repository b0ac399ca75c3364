"""Positions from a store other than the group's commits, on both brokers."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial

from aiokafka import TopicPartition

from engine.kafka.offsets import Position
from engine.process.settings import Settings
from tests.kafka.members import RecordedValues, member, publish_numbers, values
from tests.servers.waiting import eventually

Known = Callable[[Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, Position]]]
Places = Mapping[TopicPartition, Position]


class Starts:
    """Returns the positions that the test sets, and records replaced ones."""

    def __init__(self, load: Known) -> None:
        self.load = load
        self.stored: dict[TopicPartition, Position] = {}

    async def replace(self, _old: Places, new: Places) -> bool:
        self.stored.update(new)
        return True


def at(place: Position | None) -> Starts:
    """Set `place` as the position of all partitions with records."""

    async def load(partitions: Collection[TopicPartition]) -> Places:
        return {} if place is None else dict.fromkeys(partitions, place)

    return Starts(load)


def has(seen: RecordedValues, count: int) -> bool:
    return len(seen.values) >= count


async def test_each_start_is_where_it_is_set(settings: Settings, topic: str) -> None:
    await publish_numbers(settings, topic, 0, 100, b"one")
    topic_id = None
    for begin in (None, 40):  # whatever the group has committed meanwhile
        starts = at(begin if begin is None else Position(begin, topic_id))
        seen = RecordedValues()
        async with member(settings, topic, seen.handle, starts=starts):
            await eventually(partial(has, seen, 100 - (begin or 0)))
        assert seen.values == values(begin or 0, 100)
        if begin is None:  # all are new: stored with the topic's id, which the others then have
            assert {
                (place.offset, len(place.topic_id or "")) for place in starts.stored.values()
            } == {(0, 32)}
            topic_id = next(iter(starts.stored.values())).topic_id


async def test_a_partition_that_has_lost_its_end_is_read_from_the_new_end(
    settings: Settings, topic: str
) -> None:
    """As after an election that lost records: the topic is the same, its offsets went back."""
    await publish_numbers(settings, topic, 0, 5, b"one")
    new = at(None)
    async with member(settings, topic, RecordedValues().handle, starts=new):
        await eventually(lambda: new.stored)
    topic_id = next(iter(new.stored.values())).topic_id
    seen, starts = RecordedValues(), at(Position(9, topic_id))
    async with member(settings, topic, seen.handle, starts=starts):
        await eventually(lambda: starts.stored)
        await publish_numbers(settings, topic, 5, 3, b"one")
        await eventually(partial(has, seen, 3))
    assert seen.values == values(5, 8)
