"""One partition's worker: handles fetched records in order, in batches.

A handled record is done. A record that only waits in the queue is not, and the partition's next
owner reads it again.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable

from aiokafka import ConsumerRecord, TopicPartition

from engine.kafka.offsets import Position
from engine.process.lifecycle import cancel

Records = list[ConsumerRecord[bytes, bytes]]


class PartitionRestartError(Exception):
    """A worker must stop, and its partition must be read again from the committed offset.

    The consumer catches this error and restarts the partition.
    """


def next_batch(queue: deque[Records], most: int) -> Records:
    """All waiting records up to `most`, so that a worker that is behind has larger batches."""
    batch = [*queue.popleft()]
    while queue and len(batch) + len(queue[0]) <= most:
        batch.extend(queue.popleft())
    return batch


def exception_of(task: asyncio.Task[None]) -> BaseException | None:
    """The error of a task that has ended, or None."""
    return task.exception() if task.done() and not task.cancelled() else None


class PartitionWorker(ABC):
    """Passes fetched records to `handle` in batches, in one task and strictly in order.

    For one assignment of one partition, from the position `begin` on. An error that `handle` raises
    stops the process, so it retries temporary errors itself.
    """

    def __init__(
        self,
        partition: TopicPartition,
        begin: Position,
        on_progress: Callable[[], None],
        batch_records: int,
    ) -> None:
        self.partition = partition
        self.on_progress = on_progress
        self._position = begin
        self._pending = 0
        self._batch_records = batch_records
        self._queue: deque[Records] = deque()
        self._moved = asyncio.Event()  # there may be something to do
        self._closing = False
        self._task = asyncio.create_task(self._run(), name=f"partition {partition}")
        self._task.add_done_callback(lambda _: on_progress())

    @property
    def position(self) -> Position:
        """What the consumer may commit."""
        return self._position

    @property
    def pending(self) -> int:
        """Records that were offered and are not finished; over one batch, no more are offered."""
        return self._pending

    @property
    def failure(self) -> BaseException | None:
        """The error that stopped the worker."""
        return exception_of(self._task)

    def offer(self, records: Records) -> None:
        """Queue fetched records."""
        self._queue.append(records)
        self._pending += len(records)
        self._moved.set()

    def note_lag(self, lag: int, asked_at: float) -> None:  # noqa: B027
        """The partition had so many records left at `asked_at` (epoch s); called each second."""

    async def finish(self, deadline: float) -> None:
        """Finish the batch in flight, drop the queue, and end within `deadline` seconds.

        After the deadline the batch is abandoned: it is not done, so it is not committed.
        """
        self._close()
        await asyncio.wait([self._task], timeout=deadline)
        await self.abandon()

    async def abandon(self) -> None:
        """End at once, without finishing the batch. Does not raise the worker's error."""
        self._close()
        await cancel([self._task])

    @abstractmethod
    async def handle(self, batch: Records) -> None:
        """Handle a batch; return when it is finished."""

    async def wait_for_records(self) -> None:
        """Return when a batch may be handled, or the worker closes."""
        if not self._queue:
            self._moved.clear()
            await self._moved.wait()

    def _close(self) -> None:
        self._closing = True
        self._queue.clear()
        self._moved.set()

    async def _run(self) -> None:
        while not self._closing:
            await self.wait_for_records()
            if self._queue:
                batch = next_batch(self._queue, self._batch_records)
                await self.handle(batch)
                self._pending -= len(batch)
                self.on_progress()
