"""How far a consumer is behind the ends of its partitions."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import IllegalStateError

from engine.kafka.partition_worker import PartitionWorker
from engine.process.metrics import Metrics

_DEADLINE = 1.0


async def measure_lag(
    consumer: AIOKafkaConsumer,
    role: str,
    workers: Mapping[TopicPartition, PartitionWorker],
    metrics: Metrics,
) -> None:
    """Set the lag of every partition that has a worker and a known position."""
    for partition, worker in list(workers.items()):
        with suppress(IllegalStateError, TimeoutError):  # revoked meanwhile, or no position
            if partition not in consumer.assignment():
                continue
            end = consumer.highwater(partition)
            if end is None:
                continue
            async with asyncio.timeout(_DEADLINE):
                fetched = await consumer.position(partition)
            if workers.get(partition) is worker:
                labels = (role, partition.topic, str(partition.partition))
                metrics.lag.labels(*labels).set(max(0, end - fetched + worker.pending))
