"""One partition of connector-calls: records are taken in in order and finish in any order."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from aiokafka import ConsumerRecord, TopicPartition

from connectors.jobs import Job
from connectors.worker import Worker as CallWorker
from engine.cancelling import cancel
from engine.kafka.offsets import Offsets
from engine.kafka.worker import Records

_BATCH_RECORDS = 500


class TakeIn(Protocol):
    """Begins what a batch asks for. Whatever it begins is entered in `partition`."""

    async def take_in(self, partition: "CallPartition", records: Records) -> None: ...
    async def recall(self, partition: TopicPartition) -> dict[int, str]: ...


class CallPartition:
    """Implements the consumer's Worker. What it holds dies with the assignment."""

    def __init__(
        self,
        partition: TopicPartition,
        *,
        role: TakeIn,
        calls: CallWorker,
        on_progress: Callable[[], None],
    ) -> None:
        self.partition = partition
        self.jobs: dict[int, Job] = {}
        self.finished_before: dict[int, str] = {}
        self._role = role
        self._calls = calls
        self._on_progress = on_progress
        self._offsets = Offsets()
        self._queue: deque[ConsumerRecord[bytes, bytes]] = deque()
        self._queued = 0
        self._arrived = asyncio.Event()
        self._settled = asyncio.Event()
        self._closing = False
        self._lost = False
        self._task = asyncio.create_task(self._run(), name=f"calls of {partition}")
        self._task.add_done_callback(lambda _: on_progress())

    @property
    def pending(self) -> int:
        """Records offered and not finished."""
        return self._queued + self._offsets.unfinished

    @property
    def done_offset(self) -> int | None:
        """Behind what is finished without a gap."""
        return self._offsets.done

    @property
    def offsets(self) -> Offsets:
        """What is begun and not finished; to be looked at only."""
        return self._offsets

    @property
    def failure(self) -> BaseException | None:
        """What taking in raised, once it has."""
        if self._task.done() and not self._task.cancelled():
            return self._task.exception()
        return None

    @property
    def is_open(self) -> bool:
        """Whether what is under way may still be finished in the partition's name."""
        return not self._lost

    def offer(self, records: Records) -> None:
        """Queue fetched records."""
        self._queue.extend(records)
        self._queued += len(records)
        self._arrived.set()

    def begun(self, offsets: Sequence[int]) -> None:
        """These records were taken in."""
        for offset in offsets:
            self._offsets.begin(offset)
        self._queued -= len(offsets)

    def finished(self, offsets: Sequence[int]) -> None:
        """These records are done with, in whatever order."""
        for offset in offsets:
            self._offsets.finish(offset)
        self._settled.set()
        self._on_progress()

    async def finish(self, deadline: float) -> None:
        """Let what is in flight finish and leave, within `deadline` seconds; drop what waits."""
        self._closing = True
        self._queue.clear()
        self._arrived.set()
        try:
            async with asyncio.timeout(deadline):
                await asyncio.wait([self._task])
                await self._calls.drain(list(self.jobs.values()), deadline)
                await self._until_departed()
        except TimeoutError:
            pass  # it is not done, so it is not committed, and the next owner reads it
        await self.abandon()

    async def abandon(self) -> None:
        """End at once, whatever is in hand."""
        self._closing = True
        self._lost = True
        await cancel([self._task])
        self._calls.forget(list(self.jobs.values()))
        self.jobs.clear()

    async def _until_departed(self) -> None:
        """Until all that has a result has left. What was forgotten has none and stays open."""
        forgotten = len(self.jobs)
        while self._offsets.unfinished > forgotten:
            self._settled.clear()
            await self._settled.wait()

    async def _run(self) -> None:
        self.finished_before = await self._role.recall(self.partition)
        while not self._closing:
            await self._arrived.wait()
            while self._queue and not self._closing:
                # Whatever was fetched meanwhile, however many fetches it took: taking in asks Redis
                # and SQL once a batch, so a slow answer makes batches larger and nobody late.
                size = min(len(self._queue), _BATCH_RECORDS)
                await self._role.take_in(self, [self._queue.popleft() for _ in range(size)])
            if not self._closing:
                self._arrived.clear()
