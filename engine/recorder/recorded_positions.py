"""Where the recorder's partitions go on: SQL says it, and is told when a topic is another one."""

from collections.abc import Collection, Mapping

from aiokafka import TopicPartition

from engine.kafka.positions import Position
from engine.recorder.pipeline import Recorder


class RecordedPlaces:
    """Implements PositionStore with the table recorder_offset. Waits while SQL is away."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    async def load(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Position]:
        """What SQL has of them."""
        found: dict[TopicPartition, Position] = {}
        for topic in {partition.topic for partition in partitions}:
            places = await self._places(topic)
            found |= {TopicPartition(topic, number): at for number, at in places.items()}
        return {each: found[each] for each in partitions if each in found}

    async def replace(
        self, old: Mapping[TopicPartition, Position], new: Mapping[TopicPartition, Position]
    ) -> bool:
        """Write them, so that no batch is held against the offsets of another topic; False when
        another recorder has written meanwhile, or we have and the answer was lost."""
        for partition, place in new.items():
            if not await self._move(partition, old.get(partition), place):
                return False
        return True

    async def _move(self, partition: TopicPartition, old: Position | None, new: Position) -> bool:
        recorder, (topic, number) = self._recorder, partition
        return await recorder.until_sql_answers(
            lambda: recorder.ledger.move_place(topic, number, old, new)
        )

    async def _places(self, topic: str) -> Mapping[int, Position]:
        recorder = self._recorder
        return await recorder.until_sql_answers(lambda: recorder.ledger.known_places(topic))
