"""Where partitions go on: what is known of them, held against what the brokers have."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import NamedTuple, TypeVar

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata

from engine.kafka.positions import Position, PositionStore
from engine.kafka.topic_ids import topic_ids
from engine.process.failures import FIRST_BACKOFF, LAST_BACKOFF, kafka_may_recover
from engine.process.metrics import Metrics
from engine.process.server_errors import ServerErrors

log = structlog.get_logger(__name__)

_KAFKA_SECONDS = 30.0

Result = TypeVar("Result")


class Reach(NamedTuple):
    """What the brokers have of partitions: first offset, the one behind the last, topic ids."""

    begin: Mapping[TopicPartition, int]
    end: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str]


class GroupOffsets:
    """Implements PositionStore with what the consumer's group has committed."""

    def __init__(self, consumer: AIOKafkaConsumer, metrics: Metrics) -> None:
        self._consumer = consumer
        self._metrics = metrics

    async def load(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Position]:
        """What is committed. Waits for brokers that are away."""

        async def ask() -> Mapping[TopicPartition, OffsetAndMetadata]:
            coordinator = self._consumer._coordinator  # noqa: SLF001  # committed() tells no metadata
            found: Mapping[TopicPartition, OffsetAndMetadata]
            found = await coordinator.fetch_committed_offsets(list(partitions))
            return found

        found = await until_brokers_answer(ask, self._metrics.kafka_errors)
        return {partition: Position.from_commit(each) for partition, each in found.items()}

    async def replace(
        self, _old: Mapping[TopicPartition, Position], _new: Mapping[TopicPartition, Position]
    ) -> bool:
        """Nothing to do: the next commit says it."""
        return True


class StartingPoints:
    """Moves a consumer to where its partitions go on, and says what it had to leave out."""

    def __init__(
        self, consumer: AIOKafkaConsumer, starts: PositionStore, *, role: str, metrics: Metrics
    ) -> None:
        self._consumer = consumer
        self._starts = starts
        self._role = role
        self._metrics = metrics

    async def seek(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Position]:
        """Move each partition to its place; the places. Waits for brokers that are away.

        A topic that is another one than the place is of is read from its beginning. Records that
        are gone are left out. Both are logged, and the latter counted. Raises what `starts` raises.
        """
        placed = False
        while not placed:
            known = await self._starts.load(partitions)
            reach = await self.reach(partitions)
            places = {each: self._place(each, known.get(each), reach) for each in partitions}
            moved = {each: place for each, place in places.items() if place != known.get(each)}
            placed = not moved or await self._starts.replace(known, moved)
        for partition, place in places.items():
            self._consumer.seek(partition, place.offset)
        return places

    async def reach(self, partitions: Collection[TopicPartition]) -> Reach:
        """What the brokers have. Waits for those that are away."""

        async def ask() -> Reach:
            ids = await self.topic_ids({partition.topic for partition in partitions})
            begin = await self._consumer.beginning_offsets(partitions)
            return Reach(begin, await self._consumer.end_offsets(partitions), ids)

        return await until_brokers_answer(ask, self._metrics.kafka_errors)

    async def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """The ids of topics that exist, where brokers know ids. Raises what aiokafka raises."""
        return await topic_ids(self._consumer._client, topics)  # noqa: SLF001  # a request of ours

    def note_skipped(self, partition: TopicPartition, missing: int) -> None:
        """Say that records were gone before they were read."""
        log.error(
            "records are gone that were never read",
            role=self._role,
            topic=partition.topic,
            partition=partition.partition,
            missing=missing,
        )
        self._metrics.records_skipped.labels(self._role, "retention").inc(missing)

    def _place(self, partition: TopicPartition, known: Position | None, reach: Reach) -> Position:
        begin, end = reach.begin[partition], reach.end[partition]
        topic_id = reach.topic_ids.get(partition.topic)
        if known is None:
            return Position(begin, topic_id)
        is_same = topic_id is not None and topic_id == known.topic_id
        if not known.may_belong_to(topic_id) or (known.offset > end and not is_same):
            self._say("the topic is another one, reading it from its beginning", partition, known)
            return Position(begin, topic_id)
        if known.offset > end:
            self._say("the partition has lost its end, going on where it ends", partition, known)
            return Position(end, topic_id)
        if known.offset < begin:
            self.note_skipped(partition, begin - known.offset)
            known = known._replace(offset=begin)
        return known._replace(topic_id=topic_id or known.topic_id)

    def _say(self, event: str, partition: TopicPartition, known: Position) -> None:
        log.error(
            event,
            role=self._role,
            topic=partition.topic,
            partition=partition.partition,
            known_offset=known.offset,
        )


async def until_brokers_answer(
    ask: Callable[[], Awaitable[Result]], errors: ServerErrors
) -> Result:
    """The result of `ask`, tried again with backoff for as long as the brokers do not answer."""
    backoff = FIRST_BACKOFF
    while True:
        try:
            async with asyncio.timeout(_KAFKA_SECONDS):
                result = await ask()
        except (KafkaError, OSError, TimeoutError) as error:
            if not kafka_may_recover(error):
                raise
            errors.failed(error, "placing partitions")
        else:
            errors.answered("placing partitions")
            return result
        await asyncio.sleep(backoff)
        backoff = min(backoff * 2, LAST_BACKOFF)
