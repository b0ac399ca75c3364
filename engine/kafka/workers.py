"""One partition's worker: handles fetched records in order, in batches.

A handled record is done. A record that only waits in the queue is not, and the partition's next
owner reads it again.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Protocol

from aiokafka import ConsumerRecord, TopicPartition

from engine.kafka.offsets import Position
from engine.process.lifecycle import cancel

Records = list[ConsumerRecord[bytes, bytes]]


class PartitionRestartError(Exception):
    """A worker must stop, and its partition must be read again from the committed offset.

    The consumer catches this error and restarts the partition.
    """


class PartitionWorker(Protocol):
    """The consumer's view of a worker for one assignment of one partition.

    `pending` counts the records that were offered and are not finished: over one batch, nothing
    more is offered. `position` is what the consumer may commit; the worker begins there. `note_lag`
    is called each second with what was left at that time (epoch s). `failure` is the error that
    stopped the worker. `finish` ends it in order within `deadline` seconds, `abandon` at once.
    """

    @property
    def partition(self) -> TopicPartition: ...
    @property
    def pending(self) -> int: ...
    @property
    def position(self) -> Position: ...
    @property
    def failure(self) -> BaseException | None: ...
    def offer(self, records: Records) -> None: ...
    def note_lag(self, lag: int, asked_at: float) -> None: ...
    async def finish(self, deadline: float) -> None: ...
    async def abandon(self) -> None: ...


def next_batch(queue: deque[Records], most: int) -> Records:
    """All waiting records up to `most`, so that a worker that is behind has larger batches."""
    batch = [*queue.popleft()]
    while queue and len(batch) + len(queue[0]) <= most:
        batch.extend(queue.popleft())
    return batch


def exception_of(task: asyncio.Task[None]) -> BaseException | None:
    """The error of a task that has ended, or None."""
    return task.exception() if task.done() and not task.cancelled() else None


class QueueWorker(ABC):
    """Passes fetched records to `handle` in batches, in one task and strictly in order.

    An error that `handle` raises stops the process, so it retries temporary errors itself.
    """

    def __init__(
        self,
        partition: TopicPartition,
        begin: Position,
        on_progress: Callable[[], None],
        batch_records: int,
    ) -> None:
        self.partition = partition
        self.position = begin
        self.pending = 0
        self._batch_records = batch_records
        self._on_progress = on_progress
        self._queue: deque[Records] = deque()
        self._arrived = asyncio.Event()
        self._closing = False
        self._task = asyncio.create_task(self._run(), name=f"partition {partition}")
        self._task.add_done_callback(lambda _: on_progress())

    @property
    def failure(self) -> BaseException | None:
        return exception_of(self._task)

    def offer(self, records: Records) -> None:
        """Queue fetched records; the caller keeps `pending` within its bound by pausing."""
        self._queue.append(records)
        self.pending += len(records)
        self._arrived.set()

    def note_lag(self, _lag: int, _asked_at: float) -> None:  # noqa: B027
        """Nothing depends on the time."""

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
        """Return when records have arrived, or the worker closes."""
        await self._arrived.wait()

    def _close(self) -> None:
        self._closing = True
        self._queue.clear()
        self._arrived.set()

    async def _run(self) -> None:
        while not self._closing:
            await self.wait_for_records()
            self._arrived.clear()
            while self._queue and not self._closing:
                batch = next_batch(self._queue, self._batch_records)
                await self.handle(batch)
                self.pending -= len(batch)
                self._on_progress()
