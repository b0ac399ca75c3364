"""Reads and replaces the positions in SQL from which the recorder's partitions are read."""

from collections.abc import Collection, Mapping
from functools import partial

from aiokafka import TopicPartition

from engine.kafka.positions import Position
from engine.recorder.pipeline import Recorder


class RecordedPositions:
    """Implements PositionStore with the table recorder_offset. Waits while SQL is down."""

    def __init__(self, recorder: Recorder) -> None:
        self._ledger = recorder.ledger
        self._sql = recorder.sql

    async def load(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Position]:
        """The recorded positions."""
        found: dict[TopicPartition, Position] = {}
        for topic in {partition.topic for partition in partitions}:
            positions = await self._sql.until_answered(partial(self._ledger.positions, topic))
            found |= {TopicPartition(topic, number): at for number, at in positions.items()}
        return {each: found[each] for each in partitions if each in found}

    async def replace(
        self, old: Mapping[TopicPartition, Position], new: Mapping[TopicPartition, Position]
    ) -> bool:
        """Write the new positions, so that no batch is compared with the offsets of another topic.

        False if another recorder has written meanwhile, or if this one has and the answer was lost.
        """
        for partition, place in new.items():
            move = partial(self._move, partition, old.get(partition), place)
            if not await self._sql.until_answered(move):
                return False
        return True

    async def _move(self, partition: TopicPartition, old: Position | None, new: Position) -> bool:
        topic, number = partition
        async with self._ledger.transaction() as transaction:
            return await transaction.move_position(topic, number, old, new)
