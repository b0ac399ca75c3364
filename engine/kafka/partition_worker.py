"""One partition's worker: takes what was fetched in order, handles it in batches, knows how far.

What is handled counts; what only waits in the queue does not, and is read again by whoever owns
the partition next.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from aiokafka import ConsumerRecord, TopicPartition

from engine.process.cancelling import cancel

Records = list[ConsumerRecord[bytes, bytes]]


class BatchHandler(Protocol):
    """What a role does with the records of one partition.

    `handle` returns when every record of the batch is decided and what it led to is acknowledged:
    the offset behind it may then be committed. It tries again by itself what may pass. What it
    raises stops the process. One handler belongs to one assignment of one partition: what it
    remembers dies with the assignment.
    """

    async def handle(self, records: Records) -> None: ...


class PartitionWorker(Protocol):
    """What a consumer needs of whatever works on one assignment of one partition.

    `pending` counts what was offered and is not finished: at two batches the partition is paused.
    `done_offset` is how far the consumer may commit, None for nothing yet; `failure` what stopped
    the worker. `finish` ends it in good order within `deadline` seconds, `abandon` at once.
    """

    @property
    def partition(self) -> TopicPartition: ...
    @property
    def pending(self) -> int: ...
    @property
    def done_offset(self) -> int | None: ...
    @property
    def failure(self) -> BaseException | None: ...
    def offer(self, records: Records) -> None: ...
    async def finish(self, deadline: float) -> None: ...
    async def abandon(self) -> None: ...


@runtime_checkable
class NotesCommits(Protocol):
    """A worker that wants to know how far its partition is committed."""

    def note_committed(self, offset: int) -> None: ...


class BatchWorker:
    """Runs its handler over a queue of fetched records. One task, strictly in order."""

    def __init__(
        self,
        partition: TopicPartition,
        on_progress: Callable[[], None],
        *,
        handler_for: Callable[[TopicPartition], BatchHandler],
        batch_records: int,
    ) -> None:
        self.partition = partition
        self.pending = 0
        self.done_offset: int | None = None
        self._handler = handler_for(partition)
        self._batch_records = batch_records
        self._on_progress = on_progress
        self._queue: deque[Records] = deque()
        self._arrived = asyncio.Event()
        self._closing = False
        self._task = asyncio.create_task(self._run(), name=f"partition {partition}")
        self._task.add_done_callback(lambda _: on_progress())

    @property
    def failure(self) -> BaseException | None:
        """What the handler raised, once it has."""
        if self._task.done() and not self._task.cancelled():
            return self._task.exception()
        return None

    def offer(self, records: Records) -> None:
        """Queue fetched records; the caller keeps `pending` within its bound by pausing."""
        self._queue.append(records)
        self.pending += len(records)
        self._arrived.set()

    async def finish(self, deadline: float) -> None:
        """Finish the batch in hand, drop what waits, and end within `deadline` seconds.

        Past the deadline the batch is abandoned: it is not done, so it is not committed.
        """
        self._closing = True
        self._queue.clear()
        self._arrived.set()
        await asyncio.wait([self._task], timeout=deadline)
        await self.abandon()

    async def abandon(self) -> None:
        """End at once, whatever is in hand. Does not raise what the handler raised."""
        self._closing = True
        await cancel([self._task])

    async def _run(self) -> None:
        while not self._closing:
            await self._arrived.wait()
            while self._queue and not self._closing:
                batch = self._next_batch()
                await self._handler.handle(batch)
                self.done_offset = batch[-1].offset + 1
                self.pending -= len(batch)
                self._on_progress()
            if not self._closing:
                self._arrived.clear()

    def _next_batch(self) -> Records:
        """All that waits, up to the bound: larger batches when behind, small ones when not."""
        batch = self._queue.popleft()
        while self._queue and len(batch) + len(self._queue[0]) <= self._batch_records:
            batch = batch + self._queue.popleft()
        return batch
