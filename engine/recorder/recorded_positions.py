"""Where the recorder's partitions go on: SQL says it, and is told when a topic is another one."""

from collections.abc import Collection, Mapping

from aiokafka import TopicPartition

from engine.kafka.positions import Place
from engine.recorder.pipeline import Recorder


class RecordedPlaces:
    """Implements Starts with the table recorder_offset. Waits for SQL as long as it takes."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    async def known(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Place]:
        """What SQL has of them."""
        found: dict[TopicPartition, Place] = {}
        for topic in {partition.topic for partition in partitions}:
            places = await self._places(topic)
            found |= {TopicPartition(topic, number): at for number, at in places.items()}
        return {each: found[each] for each in partitions if each in found}

    async def moved(
        self, old: Mapping[TopicPartition, Place], new: Mapping[TopicPartition, Place]
    ) -> bool:
        """Write them, so that no batch is held against the offsets of another topic; False when
        another recorder has written meanwhile, or we have and the answer was lost."""
        for partition, place in new.items():
            if not await self._move(partition, old.get(partition), place):
                return False
        return True

    async def _move(self, partition: TopicPartition, old: Place | None, new: Place) -> bool:
        recorder, (topic, number) = self._recorder, partition
        return await recorder.until_sql_answers(
            lambda: recorder.ledger.move_place(topic, number, old, new)
        )

    async def _places(self, topic: str) -> Mapping[int, Place]:
        recorder = self._recorder
        return await recorder.until_sql_answers(lambda: recorder.ledger.known_places(topic))
