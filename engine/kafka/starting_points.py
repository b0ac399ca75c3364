"""Where partitions go on when somebody else than the group knows: a database, say."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from engine.failures import FIRST_BACKOFF, LAST_BACKOFF, describe, kafka_may_recover

log = structlog.get_logger(__name__)

_KAFKA_SECONDS = 30.0

Starts = Callable[[Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, int]]]


class StartingPointError(Exception):
    """A partition does not reach to where it should go on; the message says what to do."""


class StartingPoints:
    """Moves a consumer to the offsets that `starts` gives; it leaves out what is new."""

    def __init__(self, consumer: AIOKafkaConsumer, starts: Starts) -> None:
        self._consumer = consumer
        self._starts = starts

    async def seek(self, partitions: Collection[TopicPartition]) -> None:
        """Move each partition to its point, or to its beginning. Waits for brokers that are away.

        What the brokers no longer have is skipped, and logged as an error. Raises
        StartingPointError when a partition ends before its point, and what `starts` raises.
        """
        known = await self._starts(partitions)
        beginnings, ends = await self._reach(partitions)
        for partition in partitions:
            begin = beginnings[partition]
            point = known.get(partition, begin)
            if point > ends[partition]:
                raise StartingPointError(
                    f"{partition.topic}/{partition.partition} ends at {ends[partition]}, but is "
                    f"recorded up to {point}: was the topic made anew? Then give the new one "
                    "another TOPIC_PREFIX, or delete its rows from the table recorder_offset"
                )
            if point < begin:
                log.error(
                    "records are gone that were never read",
                    topic=partition.topic,
                    partition=partition.partition,
                    missing=begin - point,
                )
            self._consumer.seek(partition, max(point, begin))

    async def _reach(
        self, partitions: Collection[TopicPartition]
    ) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]:
        backoff = FIRST_BACKOFF
        while True:
            try:
                async with asyncio.timeout(_KAFKA_SECONDS):
                    return (
                        await self._consumer.beginning_offsets(partitions),
                        await self._consumer.end_offsets(partitions),
                    )
            except (KafkaError, OSError, TimeoutError) as error:
                if not kafka_may_recover(error):
                    raise
                log.warning("partitions cannot be measured now", error=describe(error))
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, LAST_BACKOFF)
