"""One partition of connector-calls: its calls begin in order, finish in any order, and are
committed up to the first that has not finished."""

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
from engine.kafka.partition_worker import Records
from engine.process.cancelling import cancel

_BATCH_RECORDS = 500


class FinishedRecord(NamedTuple):
    """A record of one assignment of a partition, and what came of it."""

    partition: "CallPartition"
    completion: CompletedCall | UndecodableRecord

    @property
    def offset(self) -> int:
        return int(self.completion.record.offset)


class ResultSink(Protocol):
    """Publishes results, and calls `finish_offsets` when all that follows from them is done."""

    async def load_finished(self, partition: TopicPartition) -> WasFinished: ...
    def add(self, finished: FinishedRecord) -> None: ...


class CallReceiver(Protocol):
    """Begins the calls of a batch, after `partition.begin`."""

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
        """What stopped this partition, once something has."""
        return exception_of(self._task)

    def offer(self, records: Records) -> None:
        """Queue fetched records."""
        self._queue.extend(records)
        self._queued += len(records)
        self._arrived.set()

    def begin(self, offsets: Sequence[int]) -> None:
        """These records were received."""
        for offset in offsets:
            self.offsets.begin(offset)
        self._queued -= len(offsets)

    def complete(self, completion: CompletedCall | UndecodableRecord) -> None:
        """A record has its result: hand it on, unless the partition was lost meanwhile."""
        if self.is_open:
            self.results.add(FinishedRecord(self, completion))

    def finish_offsets(self, offsets: Sequence[int]) -> None:
        """All that follows from these records is done."""
        for offset in offsets:
            self.offsets.finish(offset)
        self._progress.set()
        self._on_progress()

    async def finish(self, deadline: float) -> None:
        """Let tries in flight end and results be published, within `deadline` seconds; drop the
        calls that wait."""
        await self._drain(deadline)
        await self.abandon()

    async def abandon(self) -> None:
        """End at once. Calls without a result are repeated by the next owner."""
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
                forgotten = len(self.scheduled)  # these will have no result
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
                # All that was fetched meanwhile, in however many fetches: a batch asks Redis
                # and SQL once, so a slow answer makes batches larger, and no call late.
                size = min(len(self._queue), _BATCH_RECORDS)
                await self._receiver.receive(self, [self._queue.popleft() for _ in range(size)])
            if not self._closing:
                self._arrived.clear()


def exception_of(task: asyncio.Task[None]) -> BaseException | None:
    """What the task raised, once it has."""
    return task.exception() if task.done() and not task.cancelled() else None
