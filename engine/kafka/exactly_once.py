"""DELIVERY=exactly_once: the transactional producers of a role, one per partition.

The order of taking over a partition matters. First its producer starts, which aborts the open
transaction of the previous owner and fences that owner. Only then is the committed offset read, at
which the partition continues.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from functools import partial

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from engine.kafka.batch_sender import TopicLimits
from engine.kafka.client_options import connection_options
from engine.kafka.errors import TooManyPartitionsError
from engine.kafka.partition_worker import PartitionWorker
from engine.kafka.positions import GroupOffsets, Position
from engine.kafka.record_time import RecordTime
from engine.kafka.transactions import REFUSALS, TransactionalPublisher
from engine.process.metrics import Metrics, StepTimer
from engine.process.retry import Backoff, retry
from engine.process.settings import Settings

_STARTED_AT_ONCE = 8
_RETRY_SECONDS = 1.0
_BACKOFF_MS = 50
_LARGEST_REQUEST = 33 * 1024 * 1024

# Makes a worker: the partition, its publisher, its position, and the callback for progress.
WorkerMaker = Callable[
    [TopicPartition, TransactionalPublisher, Position, Callable[[], None]], PartitionWorker
]


def transactional_id(group: str, topic: str, partition: int) -> str:
    """The transactional id of a role's producer for a partition."""
    return f"{group}-{topic}-{partition}"


class Transactions(GroupOffsets):
    """The producers of one process for one role, by partition; implements PositionStore.

    `make` makes a worker, which closes the publisher that it is given and uses no other.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        consumer: AIOKafkaConsumer,
        group: str,
        role: str,
        metrics: Metrics,
        make: WorkerMaker,
    ) -> None:
        super().__init__(consumer, metrics)
        self._settings = settings
        self._group = group
        self._errors = metrics.kafka_errors
        self._step = StepTimer(metrics, role)
        self._make = make
        self._limits = TopicLimits()
        self._record_time = RecordTime()
        self._publishers: dict[TopicPartition, TransactionalPublisher] = {}
        self._places: dict[TopicPartition, Position] = {}
        self._starting = asyncio.Semaphore(_STARTED_AT_ONCE)

    async def load(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Position]:
        """The committed positions, read after all previous owners are fenced."""
        await asyncio.gather(*(self._start(each) for each in partitions))
        places = await super().load(partitions)
        self._places |= places
        return places

    async def replace(
        self, _old: Mapping[TopicPartition, Position], new: Mapping[TopicPartition, Position]
    ) -> bool:
        """Remember the topics' ids, which every commit contains."""
        self._places |= new
        return True

    def worker_for(
        self, partition: TopicPartition, on_progress: Callable[[], None]
    ) -> PartitionWorker:
        """A worker for a partition whose position was loaded."""
        publisher = self._publishers.pop(partition)
        return self._make(partition, publisher, self._places.pop(partition), on_progress)

    async def run(self) -> None:
        """Wait until cancelled; then close the producers of partitions without a worker."""
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.gather(*(each.close() for each in self._publishers.values()))

    async def _start(self, partition: TopicPartition) -> None:
        """A started producer. Waits while the brokers are down."""
        left = self._publishers.pop(partition, None)
        if left is not None:
            await left.close()

        async def start() -> TransactionalPublisher:
            publisher = self._new_producer(partition)
            try:
                async with self._starting:
                    await publisher.start()
            except BaseException:
                await publisher.close()
                raise
            return publisher

        self._publishers[partition] = await retry(
            start,
            self._errors,
            "starting a transactional producer",
            may_recover=_can_start_later,
            backoff=Backoff(_RETRY_SECONDS, _RETRY_SECONDS),
        )

    def _new_producer(self, partition: TopicPartition) -> TransactionalPublisher:
        settings = self._settings
        deadline = settings.kafka_request_timeout
        most = settings.transactional_producers
        if len(self._publishers) >= most:
            raise TooManyPartitionsError(
                f"this process would have more than {most} partitions, each with a producer of its "
                "own: start more workers, or raise PROXIMITY_TRANSACTIONAL_PRODUCERS"
            )
        options = connection_options(settings) | {
            "transactional_id": transactional_id(self._group, partition.topic, partition.partition),
            # For this time a dead owner's transaction may block consumers that read committed.
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
            record_time=self._record_time,
            timed=lambda: self._step("commit"),
        )


def _can_start_later(error: Exception) -> bool:
    return isinstance(error, KafkaError | OSError | TimeoutError) and not isinstance(
        error, REFUSALS
    )
