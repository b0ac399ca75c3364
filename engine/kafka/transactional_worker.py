"""DELIVERY=exactly_once: a worker of a role, with a transaction for each batch."""

import asyncio
import time
from collections import deque
from collections.abc import Callable

from aiokafka import TopicPartition

from engine.kafka.partition_worker import (
    PartitionWorker,
    Records,
    exception_of,
    next_batch,
)
from engine.kafka.positions import Position
from engine.kafka.transactions import TransactionalPublisher
from engine.process.cancelling import cancel

# A transaction without a message only moves the offset, which can wait for the next transaction.
_IDLE_SECONDS = 0.5


class TransactionalWorker:
    """Implements PartitionWorker: handles one batch after another, each in a transaction.

    The batch goes through a worker of the role. It is done when that worker has finished all of it,
    and committed with the transaction; the consumer never commits this worker's offsets. If a batch
    fails, the worker ends and with it the role's memory of the batch. `hold` counts the records
    that wait here (sign 1), and subtracts those that no longer do (-1).
    """

    done_offset = None

    def __init__(
        self,
        partition: TopicPartition,
        *,
        publisher: TransactionalPublisher,
        inner: Callable[[Callable[[], None]], PartitionWorker],
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
        """The error of the role or of the transaction, or None."""
        return exception_of(self._task)

    def offer(self, records: Records) -> None:
        """Queue fetched records."""
        self._hold(records, 1)
        self._queue.append(records)
        self.pending += len(records)
        self._arrived.set()

    async def finish(self, deadline: float) -> None:
        """Finish and commit the batch in flight, drop the queue; end within `deadline` seconds."""
        self._closing = True
        self._drop_queue()
        self._arrived.set()
        await asyncio.wait([self._task], timeout=deadline)
        await self.abandon()

    async def abandon(self) -> None:
        """End at once; the batch in flight is not committed."""
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
                await self._handle(next_batch(self._queue, self._batch_records))
        await self._commit()

    async def _something_arrived(self) -> bool:
        """Wait for records; not for long if an offset is to be committed."""
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
            await self._publisher.commit(Position(self._uncommitted, self._topic_id))
            self._uncommitted = None
