"""Reads a period's detections from Kafka, up to the current end of the topic."""

from collections.abc import AsyncGenerator, Sequence
from math import inf

from aiokafka import TopicPartition

from engine.cli.errors import CommandError
from engine.cli.replay.period import ReplayPeriod
from engine.kafka.detections import DecodedDetection
from engine.kafka.partition_worker import Records
from engine.kafka.topic_reader import OffsetRange, TopicReader, partitions_of
from engine.kafka.topics import detection_topics
from engine.process.settings import Settings


class KafkaSource:
    """The records whose detections may be in a period. `total` and `read` count offsets.

    Kafka finds records by their timestamps. A detection may arrive late, or have the time of a
    phone whose clock is ahead, so the topic is read from `max_age` before the period to `max_age`
    after it. Later records are stale. A device's records are in one partition, in order.
    """

    def __init__(self, settings: Settings, reader: TopicReader, period: ReplayPeriod) -> None:
        self.total: int | None = None
        self.read = 0
        self._settings = settings
        self._reader = reader
        self._period = period
        self._topics = [topic.name for topic in detection_topics(settings)]

    @property
    def name(self) -> str:
        """The source's name in messages."""
        return ", ".join(self._topics)

    async def batches(self) -> AsyncGenerator[Records, None]:
        """Records, one partition at a time.

        Raises KafkaError or TimeoutError, and CommandError if there is no such topic.
        """
        partitions = await partitions_of(self._settings, self._topics)
        if not partitions:
            raise CommandError(f"there is no topic {self.name} yet: `proximity run` makes it")
        begins, ends = await self._offsets(partitions)
        self.total = sum(ends[tp] - begins[tp] for tp in ends)
        async for records in self._reader.records_until(begins, ends):
            if records:
                self.read += len(records)
                yield records

    def check_times(self, detections: Sequence[DecodedDetection]) -> None:
        """Do nothing, because every record has a timestamp."""

    async def _offsets(
        self, partitions: list[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        ranges = await self._reader.ranges(partitions)
        begins = {tp: each.begin for tp, each in ranges.items()}
        ends = {tp: each.end for tp, each in ranges.items()}
        margin, period = self._settings.max_detection_age, self._period
        if period.warm_up > -inf:
            begins |= await self._first_since(ranges, period.warm_up - margin)
        if period.until < inf:
            ends |= await self._first_since(ranges, period.until + margin)
        return begins, {tp: max(end, begins[tp]) for tp, end in ends.items()}

    async def _first_since(
        self, ranges: dict[TopicPartition, OffsetRange], instant: float
    ) -> dict[TopicPartition, int]:
        """The first offsets at `instant`. A partition without one is read from its beginning."""
        found = await self._reader.first_since(ranges, instant)
        return {tp: offset for tp, offset in found.items() if offset is not None}
