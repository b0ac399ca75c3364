"""One partition of connector-calls: its calls start in order and finish in any order.

The offset before the first unfinished call is committed.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from aiokafka import ConsumerRecord, TopicPartition

from connectors.scheduled_call import ScheduledCall
from connectors.scheduler import CallScheduler
from engine.connector.call_result import CompletedCall, UndecodableRecord
from engine.connector.finished_calls import WasFinished
from engine.kafka.offsets import OffsetTracker
from engine.kafka.partition_worker import Records, exception_of
from engine.process.cancelling import cancel

_BATCH_RECORDS = 500


class FinishedRecord(NamedTuple):
    """A record of one assignment of a partition, with its result."""

    partition: "CallPartition"
    completion: CompletedCall | UndecodableRecord

    @property
    def offset(self) -> int:
        return int(self.completion.record.offset)


class ResultSink(Protocol):
    """Publishes results, then calls `finish_offsets` when all consequences are done."""

    async def load_finished(self, partition: TopicPartition) -> WasFinished: ...
    def add(self, finished: FinishedRecord) -> None: ...


class CallReceiver(Protocol):
    """Starts the calls of a batch, after `partition.begin`."""

    async def receive(self, partition: "CallPartition", records: Records) -> None: ...


class CallPartition:
    """One assignment of a partition; implements the consumer's PartitionWorker."""

    def __init__(
        self,
        partition: TopicPartition,
        on_progress: Callable[[], None],
        *,
        receiver: CallReceiver,
        scheduler: CallScheduler,
        results: ResultSink,
    ) -> None:
        self.partition = partition
        self.results = results
        self.scheduled: dict[int, ScheduledCall] = {}
        self.offsets = OffsetTracker()
        self.was_finished: WasFinished = lambda _offset, _id: False
        self.is_open = True
        self._receiver = receiver
        self._scheduler = scheduler
        self._on_progress = on_progress
        self._queue: deque[ConsumerRecord[bytes, bytes]] = deque()
        self._queued = 0
        self._arrived = asyncio.Event()
        self._progress = asyncio.Event()
        self._closing = False
        self._task = asyncio.create_task(self._run(), name=f"calls of {partition}")
        self._task.add_done_callback(lambda _: on_progress())

    @property
    def pending(self) -> int:
        """Records offered that have not finished."""
        return self._queued + self.offsets.unfinished

    @property
    def done_offset(self) -> int | None:
        """The offset to commit: all records before it have finished."""
        return self.offsets.done

    @property
    def failure(self) -> BaseException | None:
        """The error that stopped this partition, or None."""
        return exception_of(self._task)

    def offer(self, records: Records) -> None:
        """Queue fetched records."""
        self._queue.extend(records)
        self._queued += len(records)
        self._arrived.set()

    def begin(self, offsets: Sequence[int]) -> None:
        """Note that records with these offsets were received."""
        for offset in offsets:
            self.offsets.begin(offset)
        self._queued -= len(offsets)

    def complete(self, completion: CompletedCall | UndecodableRecord) -> None:
        """Pass a record's result on, unless the partition was lost meanwhile."""
        if self.is_open:
            self.results.add(FinishedRecord(self, completion))

    def finish_offsets(self, offsets: Sequence[int]) -> None:
        """Note that all consequences of these records are done."""
        for offset in offsets:
            self.offsets.finish(offset)
        self._progress.set()
        self._on_progress()

    async def finish(self, deadline: float) -> None:
        """Await tries in flight and publish their results, within `deadline` seconds.

        Waiting calls are dropped.
        """
        await self._drain(deadline)
        await self.abandon()

    async def abandon(self) -> None:
        """End at once. The next owner repeats the calls without a result."""
        self._closing = True
        self.is_open = False
        await cancel([self._task])
        self._scheduler.forget(list(self.scheduled.values()))
        self.scheduled.clear()

    async def _drain(self, deadline: float) -> None:
        self._closing = True
        self._queue.clear()
        self._arrived.set()
        try:
            async with asyncio.timeout(deadline):
                await asyncio.wait([self._task])
                await self._scheduler.drain(list(self.scheduled.values()), deadline)
                forgotten = len(self.scheduled)  # these calls get no result
                while self.offsets.unfinished > forgotten:
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            pass  # unfinished calls are not committed: the partition's next owner repeats them

    async def _run(self) -> None:
        self.was_finished = await self.results.load_finished(self.partition)
        while not self._closing:
            await self._arrived.wait()
            while self._queue and not self._closing:
                # A batch is all records that were fetched meanwhile. It makes one look-up in Redis
                # and SQL, so that a slow answer makes batches larger and delays no call.
                size = min(len(self._queue), _BATCH_RECORDS)
                await self._receiver.receive(self, [self._queue.popleft() for _ in range(size)])
            if not self._closing:
                self._arrived.clear()
