"""The offsets from which the recorder's partitions are read on, as SQL has them."""

from collections.abc import Collection, Mapping
from functools import partial

from aiokafka import TopicPartition

from engine.kafka.positions import Place
from engine.recorder.pipeline import Recorder


class RecordedPositions:
    """Implements Starts with the table recorder_offset. Waits for SQL as long as it takes."""

    def __init__(self, recorder: Recorder) -> None:
        self._ledger = recorder.ledger
        self._sql = recorder.sql

    async def known(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Place]:
        """The recorded positions."""
        found: dict[TopicPartition, Place] = {}
        for topic in {partition.topic for partition in partitions}:
            positions = await self._sql.until_answered(partial(self._ledger.positions, topic))
            found |= {TopicPartition(topic, number): at for number, at in positions.items()}
        return {each: found[each] for each in partitions if each in found}

    async def moved(
        self, old: Mapping[TopicPartition, Place], new: Mapping[TopicPartition, Place]
    ) -> bool:
        """Write the new positions, so that no batch is held against the offsets of another topic.
        False when another recorder has written meanwhile, or this one has and the answer was lost.
        """
        for partition, place in new.items():
            move = partial(self._move, partition, old.get(partition), place)
            if not await self._sql.until_answered(move):
                return False
        return True

    async def _move(self, partition: TopicPartition, old: Place | None, new: Place) -> bool:
        topic, number = partition
        async with self._ledger.transaction() as transaction:
            return await transaction.move_position(topic, number, old, new)
