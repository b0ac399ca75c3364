"""How far a member of a group is behind the ends of its partitions: in records, and in seconds."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import IllegalStateError

from engine.kafka.committer import AssignedPartition
from engine.kafka.partition_worker import Records
from engine.process.metrics import Metrics

_PAUSE_SECONDS = 1.0


class ConsumerLag:
    """Measures every partition with a known position each second, while `run` runs.

    `partitions` has those with a worker, as they come and go.
    """

    def __init__(
        self,
        *,
        consumer: AIOKafkaConsumer,
        role: str,
        partitions: Mapping[TopicPartition, AssignedPartition],
        metrics: Metrics,
    ) -> None:
        self._consumer = consumer
        self._role = role
        self._partitions = partitions
        self._metrics = metrics
        self._records: dict[TopicPartition, int] = {}
        self._newest: dict[TopicPartition, float] = {}  # epoch seconds of the last fetched record

    def note_fetched(self, partition: TopicPartition, records: Records) -> None:
        """These records were fetched."""
        timestamp = records[-1].timestamp
        if timestamp > 0:  # brokers before 0.10 know none
            self._newest[partition] = timestamp / 1000

    def seconds_behind(self, now: float) -> float | None:
        """The age of the newest fetched record of the partition that is the farthest behind.

        0 if every record has been handled; None while a partition has no position yet, or its end
        is not known. By the records' own timestamps; `now` in epoch seconds.
        """
        if set(self._consumer.assignment()) - set(self._partitions):
            return None
        behind = 0.0
        for partition in self._partitions:
            records, newest = self._records.get(partition), self._newest.get(partition)
            if records is None or (records and newest is None):
                return None
            if records and newest is not None:
                behind = max(behind, now - newest)
        return behind

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            await asyncio.sleep(_PAUSE_SECONDS)
            for removed in self._records.keys() - self._partitions.keys():
                self._records.pop(removed)
                self._newest.pop(removed, None)
            for partition, assigned in list(self._partitions.items()):
                # Revoked meanwhile, or without a position yet: the next round measures it.
                with suppress(IllegalStateError, TimeoutError):
                    await self._measure(partition, assigned)

    async def _measure(self, partition: TopicPartition, assigned: AssignedPartition) -> None:
        if partition not in self._consumer.assignment():
            return
        end = self._consumer.highwater(partition)
        if end is None:
            return
        async with asyncio.timeout(_PAUSE_SECONDS):
            fetched = await self._consumer.position(partition)
        if self._partitions.get(partition) is assigned:
            lag = max(0, end - fetched + assigned.worker.pending)
            labels = (self._role, partition.topic, str(partition.partition))
            self._metrics.lag.labels(*labels).set(lag)
            self._records[partition] = lag
