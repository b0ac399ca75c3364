"""Positions of partitions: an offset together with the id of its topic.

A topic that is deleted and created again counts from 0 under the old name, and once it is longer
than the old topic, old offsets seem to fit. So the topic's id is stored with the offset: for a
consumer group in the metadata of the commit, for the recorder in SQL.
"""

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.structs import OffsetAndMetadata

from engine.kafka.cluster_metadata import topic_ids
from engine.process.metrics import Metrics
from engine.process.retry import retry

log = structlog.get_logger(__name__)

_DEADLINE = 30.0
_POSITIONING = "placing partitions"  # the kind of call, for ServerErrors
_METADATA = re.compile(
    r"topic=(?P<topic>[0-9a-f]{32})(?: finished=(?P<finished>[\w=-]*))?", re.ASCII
)


class Position(NamedTuple):
    """The first record that is not done yet. `topic_id` is None if it is not known.

    `finished_ranges` is the text of FinishedRanges: the records after the offset that are done.
    """

    offset: int
    topic_id: str | None = None
    finished_ranges: str = ""

    def to_commit(self) -> OffsetAndMetadata:
        """The position as a group commits it."""
        if self.topic_id is None:
            return OffsetAndMetadata(self.offset, "")
        finished = f" finished={self.finished_ranges}" if self.finished_ranges else ""
        return OffsetAndMetadata(self.offset, f"topic={self.topic_id}{finished}")

    @classmethod
    def from_commit(cls, committed: OffsetAndMetadata) -> "Position":
        """The position in a commit. Metadata of another program name no topic."""
        found = _METADATA.fullmatch(committed.metadata or "")
        if found is None:
            return cls(committed.offset)
        return cls(committed.offset, found["topic"], found["finished"] or "")

    def may_belong_to(self, topic_id: str | None) -> bool:
        """Whether the position may be in the topic of this id; an unknown id may be any."""
        return self.topic_id is None or topic_id is None or self.topic_id == topic_id

    def topic_ended_before(self, new: "Position") -> bool:
        """Whether this position's topic was deleted, if the partition continues at `new`."""
        return new.offset < self.offset or not self.may_belong_to(new.topic_id)


class PositionStore(Protocol):
    """Stores the positions at which partitions continue."""

    async def load(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Position]:
        """The position of each partition; a new partition is left out. May wait without a bound."""

    async def replace(
        self,
        old: Mapping[TopicPartition, Position],
        new: Mapping[TopicPartition, Position],
    ) -> bool:
        """Partitions continue at `new`, which differs from `old` (of `load`).

        False if `old` is out of date: load again.
        """


class GroupOffsets:
    """Implements PositionStore with the commits of the consumer's group."""

    def __init__(self, consumer: AIOKafkaConsumer, metrics: Metrics) -> None:
        self._consumer = consumer
        self._metrics = metrics

    async def load(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Position]:
        """The committed positions. Waits for brokers that are down."""

        async def fetch() -> Mapping[TopicPartition, OffsetAndMetadata]:
            coordinator = self._consumer._coordinator  # noqa: SLF001  # committed() has no metadata
            found: Mapping[TopicPartition, OffsetAndMetadata]
            found = await coordinator.fetch_committed_offsets(list(partitions))
            return found

        found = await retry(fetch, self._metrics.kafka_errors, _POSITIONING, deadline=_DEADLINE)
        return {partition: Position.from_commit(each) for partition, each in found.items()}

    async def replace(
        self, _old: Mapping[TopicPartition, Position], _new: Mapping[TopicPartition, Position]
    ) -> bool:
        """Nothing to do: the next commit writes the new position."""
        return True


class Extent(NamedTuple):
    """The brokers' data on partitions: first offset, the offset after the last, topic ids."""

    begin: Mapping[TopicPartition, int]
    end: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str]


class Positioner:
    """Seeks a consumer to the positions of its partitions; logs and counts skipped records."""

    def __init__(
        self, consumer: AIOKafkaConsumer, store: PositionStore, *, role: str, metrics: Metrics
    ) -> None:
        self._consumer = consumer
        self._store = store
        self._role = role
        self._metrics = metrics

    async def seek(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Position]:
        """Move each partition to its position, and return the positions. Waits for brokers.

        If a topic is another one than the position's, it is read from its beginning. Deleted
        records are skipped. Both are logged, and skipped records are counted. Raises the store's
        errors.
        """
        while True:
            known = await self._store.load(partitions)
            extent = await self.extent(partitions)
            found = {each: self._position(each, known.get(each), extent) for each in partitions}
            changed = {each: at for each, at in found.items() if at != known.get(each)}
            if not changed or await self._store.replace(known, changed):
                break
        for partition, position in found.items():
            self._consumer.seek(partition, position.offset)
        return found

    async def extent(self, partitions: Collection[TopicPartition]) -> Extent:
        """The extent of partitions. Waits for brokers that are down."""

        async def fetch() -> Extent:
            ids = await self.topic_ids({partition.topic for partition in partitions})
            begin = await self._consumer.beginning_offsets(partitions)
            return Extent(begin, await self._consumer.end_offsets(partitions), ids)

        return await retry(fetch, self._metrics.kafka_errors, _POSITIONING, deadline=_DEADLINE)

    async def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """The ids of topics that exist, if the brokers know ids. Raises the errors of aiokafka."""
        return await topic_ids(self._consumer._client, topics)  # noqa: SLF001  # a request of ours

    def note_skipped(self, partition: TopicPartition, missing: int) -> None:
        """Count and log records that were deleted before they were read."""
        self._log("records are gone that were never read", partition, missing=missing)
        self._metrics.records_skipped.labels(self._role, "retention").inc(missing)

    def _position(
        self, partition: TopicPartition, known: Position | None, extent: Extent
    ) -> Position:
        begin, end = extent.begin[partition], extent.end[partition]
        topic_id = extent.topic_ids.get(partition.topic)
        if known is None:
            return Position(begin, topic_id)
        is_same = topic_id is not None and topic_id == known.topic_id
        if not known.may_belong_to(topic_id) or (known.offset > end and not is_same):
            event = "the topic is another one, reading it from its beginning"
            self._log(event, partition, known_offset=known.offset)
            return Position(begin, topic_id)
        if known.offset > end:
            event = "the partition has lost its end, going on where it ends"
            self._log(event, partition, known_offset=known.offset)
            return Position(end, topic_id)
        if known.offset < begin:
            self.note_skipped(partition, begin - known.offset)
            known = known._replace(offset=begin)
        return known._replace(topic_id=topic_id or known.topic_id)

    def _log(self, event: str, partition: TopicPartition, **fields: int) -> None:
        topic, number = partition
        log.error(event, role=self._role, topic=topic, partition=number, **fields)
