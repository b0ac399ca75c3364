"""DELIVERY=exactly_once: the workers of a role, each within transactions of its own.

Taking a partition has a strict order: first its producer starts, which ends whatever the previous
owner left open and shuts that owner out; only then is it read what is committed, and the partition
goes on there.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import partial

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from engine.kafka.batch_sender import TopicLimits
from engine.kafka.connection import connection_options
from engine.kafka.partition_worker import Records, Worker
from engine.kafka.positions import Place
from engine.kafka.starting_points import GroupOffsets
from engine.kafka.transactions import REFUSALS, TransactionalPublisher
from engine.process.cancelling import cancel
from engine.process.failures import describe
from engine.process.metrics import Metrics
from engine.process.settings import Settings

log = structlog.get_logger(__name__)

_STARTED_AT_ONCE = 8
_RETRY_SECONDS = 1.0
_BACKOFF_MS = 50
_LARGEST_REQUEST = 33 * 1024 * 1024
# Without a message a transaction only moves the offset: that can wait for the next one.
_IDLE_SECONDS = 0.5

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


class TransactionalWorker:
    """Implements Worker: one batch after another, each with a transaction around it.

    The batch goes through a worker of the role. It is done when that one has finished all of it,
    and committed when the transaction is: this worker's own offsets are never left to the
    consumer's commits. What the role remembers of a batch dies with the worker if it fails.
    `hold` counts the records that wait here (sign 1), and those that do not any more (-1).
    """

    done_offset = None

    def __init__(
        self,
        partition: TopicPartition,
        *,
        publisher: TransactionalPublisher,
        inner: Callable[[Callable[[], None]], Worker],
        topic_id: str | None,
        batch_records: int,
        on_progress: Callable[[], None],
        hold: Callable[[Records, int], None] = lambda _records, _sign: None,
    ) -> None:
        self.partition = partition
        self.pending = 0
        self._hold = hold
        self._publisher = publisher
        self._topic_id = topic_id
        self._batch_records = batch_records
        self._on_progress = on_progress
        self._queue: deque[Records] = deque()
        self._arrived = asyncio.Event()
        self._moved = asyncio.Event()
        self._closing = False
        self._uncommitted: int | None = None
        self._since = 0.0
        self._inner = inner(self._moved.set)
        self._task = asyncio.create_task(self._run(), name=f"transactions of {partition}")
        self._task.add_done_callback(lambda _: on_progress())

    @property
    def failure(self) -> BaseException | None:
        """What the role or the transaction raised, once it has."""
        if self._task.done() and not self._task.cancelled():
            return self._task.exception()
        return None

    def offer(self, records: Records) -> None:
        """Queue fetched records."""
        self._hold(records, 1)
        self._queue.append(records)
        self.pending += len(records)
        self._arrived.set()

    async def finish(self, deadline: float) -> None:
        """Finish and commit the batch in hand, drop what waits; end within `deadline` seconds."""
        self._closing = True
        self._drop_queue()
        self._arrived.set()
        await asyncio.wait([self._task], timeout=deadline)
        await self.abandon()

    async def abandon(self) -> None:
        """End at once; what is in hand is not committed."""
        self._closing = True
        self._drop_queue()
        await cancel([self._task])
        await self._inner.abandon()
        await self._publisher.close()

    async def _run(self) -> None:
        while not self._closing:
            if not await self._something_arrived():
                await self._commit()
            self._arrived.clear()
            while self._queue and not self._closing:
                await self._handle(self._next_batch())
        await self._commit()

    async def _something_arrived(self) -> bool:
        """Wait for it; if something is to be committed, not for long."""
        try:
            async with asyncio.timeout(None if self._uncommitted is None else _IDLE_SECONDS):
                await self._arrived.wait()
        except TimeoutError:
            return False
        return True

    def _drop_queue(self) -> None:
        while self._queue:
            self._hold(self._queue.popleft(), -1)

    async def _handle(self, batch: Records) -> None:
        self._hold(batch, -1)
        self._inner.offer(batch)
        while self._inner.pending:
            if self._inner.failure is not None:
                raise self._inner.failure
            await self._moved.wait()
            self._moved.clear()
        if self._uncommitted is None:
            self._since = time.monotonic()
        self._uncommitted = batch[-1].offset + 1
        if self._publisher.is_open or time.monotonic() - self._since > _IDLE_SECONDS:
            await self._commit()
        self.pending -= len(batch)
        self._on_progress()

    async def _commit(self) -> None:
        if self._uncommitted is not None:
            await self._publisher.commit(Place(self._uncommitted, self._topic_id))
            self._uncommitted = None

    def _next_batch(self) -> Records:
        batch = self._queue.popleft()
        while self._queue and len(batch) + len(self._queue[0]) <= self._batch_records:
            batch = batch + self._queue.popleft()
        return batch
