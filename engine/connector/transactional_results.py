"""DELIVERY=exactly_once: a call's result is published and its offset committed, or neither.

Calls finish in any order, and a committed offset covers no gaps. So the transaction that publishes
results commits the offset before which all calls are finished, with metadata that names the calls
after it that are finished. Results for which the metadata has no room wait until an earlier call
finishes.

Claims are updated before the transaction, because they are in Redis. After a crash in between, the
call is repeated and updates no claim that it does not own.
"""

import asyncio
from collections.abc import Callable, Sequence

from aiokafka import TopicPartition

from connectors.scheduler import CallScheduler
from engine.connector.call_partition import (
    CallPartition,
    CallReceiver,
    FinishedRecord,
    ResultSink,
)
from engine.connector.finished_calls import WasFinished
from engine.connector.result_publisher import BatchQueue, ResultMemory, ResultPublisher, run_steps
from engine.kafka.dead_letters import DeadLetterPublisher
from engine.kafka.offsets import MOST_CHARACTERS, FinishedRanges, OffsetTracker
from engine.kafka.partition_worker import exception_of
from engine.kafka.positions import Position
from engine.kafka.transactions import TransactionalPublisher
from engine.process.cancelling import cancel
from engine.redis.claims import ClaimUpdate

_MOST_RESULTS = 1000  # in a transaction
_IDLE_SECONDS = 1.0


class TransactionalResults(ResultSink):
    """Handles the results of one assignment of a partition. `run` must be running.

    Updates claims, then publishes and commits in one transaction. `publisher` publishes with
    `transactions`.
    """

    def __init__(
        self,
        *,
        steps: ResultPublisher,
        transactions: TransactionalPublisher,
        publisher: DeadLetterPublisher,
        place: Position,
        memory: ResultMemory,
    ) -> None:
        self.offsets = OffsetTracker()
        self._steps = steps
        self._transactions = transactions
        self._publisher = publisher
        self._topic_id = place.topic_id
        self._finished_before = FinishedRanges.read(place.finished_ranges)
        self._memory = memory
        self._waiting_size = 0
        self._to_update: BatchQueue[tuple[FinishedRecord, ClaimUpdate]] = BatchQueue()
        self._to_publish: BatchQueue[FinishedRecord] = BatchQueue()
        self._without_room: list[FinishedRecord] = []
        self._committed: int | None = None
        self._committing = asyncio.Lock()

    async def load_finished(self, partition: TopicPartition) -> WasFinished:  # noqa: ARG002
        """The finished calls that the last owner of the partition committed with the offset."""
        return lambda offset, _id: offset in self._finished_before

    def add(self, finished: FinishedRecord) -> None:
        self._take_memory(finished.completion.content_size)
        update = finished.completion.claim_update()
        if update is None:
            self._to_publish.put(finished)
        else:
            self._to_update.put((finished, update))

    async def run(self) -> None:
        """Run the steps until cancelled. Raises TransactionLostError."""
        try:
            await run_steps(
                self._to_update.run(self._update_claims),
                self._to_publish.run(self._publish_fitting),
                self._commit_when_idle(),
            )
        finally:
            self._take_memory(-self._waiting_size)

    async def close(self) -> None:
        await self._transactions.close()

    async def _update_claims(self, batch: list[tuple[FinishedRecord, ClaimUpdate]]) -> None:
        await self._steps.update_claims([update for _, update in batch])
        self._to_publish.put(*(finished for finished, _ in batch))

    async def _publish_fitting(self, batch: list[FinishedRecord]) -> None:
        waiting = sorted(self._without_room + batch, key=lambda finished: finished.offset)
        while waiting:
            count = self.fitting([finished.offset for finished in waiting[:_MOST_RESULTS]])
            if not count:
                break
            async with self._committing:
                await self._publish_and_commit(waiting[:count])
            del waiting[:count]
        self._without_room = waiting

    async def _publish_and_commit(self, batch: list[FinishedRecord]) -> None:
        offsets = [finished.offset for finished in batch]
        with self._steps.step("publish"):
            published = await self._steps.publish(self._publisher, batch)
            # A call with too large a notification is a failure now, which gives its claim back.
            failed = [new for new, old in zip(published, batch, strict=True) if new is not old]
            updates = [each.completion.claim_update() for each in failed]
            if owned := [update for update in updates if update is not None]:
                await self._steps.update_claims(owned)
            await self._commit(offsets)
        self._take_memory(-sum(finished.completion.content_size for finished in batch))
        self._steps.count(published)
        batch[0].partition.finish_offsets(offsets)

    async def _commit(self, finishing: Sequence[int]) -> None:
        done, _ = self.offsets.after(frozenset(finishing))
        if done is None:
            done = self.offsets.first
        assert done is not None  # noqa: S101  # a call was received
        await self._transactions.commit(Position(done, self._topic_id, self.metadata(finishing)))
        self._committed = done

    def metadata(self, finishing: Sequence[int]) -> str:
        """The finished offsets after the committed one.

        Offsets that were finished before this assignment and are not read again yet are included.
        """
        _, finished = self.offsets.after(frozenset(finishing))
        beyond = self._finished_before.beyond(self.offsets.end or 0)
        return FinishedRanges([*finished, *beyond]).text()

    def fitting(self, offsets: list[int]) -> int:
        """How many of the offsets, from the first on, fit into the metadata of one commit."""
        fits, too_many = 0, len(offsets) + 1
        count = len(offsets)
        while fits + 1 < too_many:
            if len(self.metadata(offsets[:count])) <= MOST_CHARACTERS:
                fits = count
            else:
                too_many = count
            count = (fits + too_many) // 2
        return fits

    async def _commit_when_idle(self) -> None:
        """Commit the offsets of calls that were finished before this assignment."""
        while True:
            await asyncio.sleep(_IDLE_SECONDS)
            async with self._committing:
                if self.offsets.done not in (None, self._committed):
                    await self._commit([])

    def _take_memory(self, size: int) -> None:
        self._waiting_size += size
        if size < 0:
            self._memory.give_back(-size)
        else:
            self._memory.take(size)


class TransactionalCallPartition(CallPartition):
    """A CallPartition whose results have transactions of their own.

    The transactions commit its offsets; the consumer never does.
    """

    def __init__(
        self,
        partition: TopicPartition,
        on_progress: Callable[[], None],
        *,
        receiver: CallReceiver,
        scheduler: CallScheduler,
        results: TransactionalResults,
    ) -> None:
        super().__init__(
            partition, on_progress, receiver=receiver, scheduler=scheduler, results=results
        )
        self.offsets = results.offsets
        self._close = results.close
        self._publishing = asyncio.create_task(results.run(), name=f"results of {partition}")
        self._publishing.add_done_callback(lambda _: on_progress())

    @property
    def done_offset(self) -> None:
        """None, because the consumer has nothing to commit."""
        return None

    @property
    def failure(self) -> BaseException | None:
        return exception_of(self._publishing) or super().failure

    async def abandon(self) -> None:
        await super().abandon()
        await cancel([self._publishing])
        await self._close()

    async def _drain(self, deadline: float) -> None:
        """As CallPartition, but only while results can be published."""
        draining = asyncio.create_task(super()._drain(deadline))
        await asyncio.wait([draining, self._publishing], return_when=asyncio.FIRST_COMPLETED)
        await cancel([draining])
