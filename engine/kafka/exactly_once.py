"""DELIVERY=exactly_once: the producers of a role, one a partition.

Taking a partition has a strict order: first its producer starts, which ends whatever the previous
owner left open and shuts that owner out; only then is it read what is committed, and the partition
goes on there.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from functools import partial

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from engine.kafka.batch_sender import TopicLimits
from engine.kafka.connection import connection_options
from engine.kafka.partition_worker import Worker
from engine.kafka.positions import Place
from engine.kafka.starting_points import GroupOffsets
from engine.kafka.transactions import REFUSALS, TransactionalPublisher
from engine.process.failures import describe
from engine.process.metrics import Metrics
from engine.process.settings import Settings

log = structlog.get_logger(__name__)

_STARTED_AT_ONCE = 8
_RETRY_SECONDS = 1.0
_BACKOFF_MS = 50
_LARGEST_REQUEST = 33 * 1024 * 1024

# The partition, what to publish it with, where it goes on, and whom to tell of progress.
WorkerMaker = Callable[[TopicPartition, TransactionalPublisher, Place, Callable[[], None]], Worker]


class TooManyPartitionsError(Exception):
    """One process has more partitions than it may have producers; the message says what to do."""


class Transactions(GroupOffsets):
    """The producers of one process for one role, by partition; implements Starts.

    `make` makes a worker, which closes the publisher that it is given and uses no other.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        consumer: AIOKafkaConsumer,
        group: str,
        metrics: Metrics,
        make: WorkerMaker,
    ) -> None:
        super().__init__(consumer, metrics)
        self._settings = settings
        self._group = group
        self._errors = metrics.kafka_errors
        self._make = make
        self._limits = TopicLimits()
        self._publishers: dict[TopicPartition, TransactionalPublisher] = {}
        self._places: dict[TopicPartition, Place] = {}
        self._starting = asyncio.Semaphore(_STARTED_AT_ONCE)

    async def known(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Place]:
        """What is committed, once nobody else can commit any more."""
        await asyncio.gather(*(self._start(each) for each in partitions))
        places = await super().known(partitions)
        self._places |= places
        return places

    async def moved(
        self, _old: Mapping[TopicPartition, Place], new: Mapping[TopicPartition, Place]
    ) -> bool:
        """Remember the topics' ids for the commits."""
        self._places |= new
        return True

    def worker_for(self, partition: TopicPartition, on_progress: Callable[[], None]) -> Worker:
        """The worker of a partition that `known` was asked for."""
        publisher = self._publishers.pop(partition)
        return self._make(partition, publisher, self._places.pop(partition), on_progress)

    async def run(self) -> None:
        """Until cancelled; then close the producers of partitions that were never begun."""
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.gather(*(each.close() for each in self._publishers.values()))

    async def _start(self, partition: TopicPartition) -> None:
        """A started producer. Waits for brokers that are away."""
        left = self._publishers.pop(partition, None)
        if left is not None:
            await left.close()
        while True:
            publisher = self._made(partition)
            try:
                async with self._starting:
                    await publisher.start()
            except (KafkaError, OSError, TimeoutError) as error:
                if isinstance(error, REFUSALS):
                    raise
                self._errors.inc()
                log.warning("no transactional producer yet", error=describe(error))
            else:
                self._publishers[partition] = publisher
                return
            finally:
                if self._publishers.get(partition) is not publisher:
                    await publisher.close()
            await asyncio.sleep(_RETRY_SECONDS)

    def _made(self, partition: TopicPartition) -> TransactionalPublisher:
        settings = self._settings
        deadline = settings.kafka_request_timeout
        most = settings.transactional_producers
        if len(self._publishers) >= most:
            raise TooManyPartitionsError(
                f"this process would have more than {most} partitions, each with a producer of its "
                "own: start more workers, or raise PROXIMITY_TRANSACTIONAL_PRODUCERS"
            )
        options = connection_options(settings) | {
            "transactional_id": f"{self._group}-{partition.topic}-{partition.partition}",
            # A dead owner's open transaction holds up whoever reads committed, for so long at most.
            "transaction_timeout_ms": int((deadline + 10) * 1000),
            "retry_backoff_ms": _BACKOFF_MS,
            "max_batch_size": _LARGEST_REQUEST,
            "linger_ms": 0,
        }
        return TransactionalPublisher(
            make=partial(AIOKafkaProducer, **options),
            deadline=deadline,
            partition=partition,
            group=self._group,
            limits=self._limits,
        )
