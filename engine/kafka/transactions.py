"""Publishes in transactions: messages and the offset of their cause together, or neither.

Each partition has a producer with the transactional id `<group>-<topic>-<partition>`. When the next
owner of the partition starts its producer under the same id, the brokers abort the last owner's
open transaction and refuse everything that it sends later. This is the fence: aiokafka's offsets in
a transaction carry no generation of the group.

Nothing is repaired here. After any error the producer is given up with its transaction, and the
partition begins again as if it were newly assigned: with a fresh producer, from the committed
offset. So it does not matter whether a commit with a lost answer has happened.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, cast

from aiokafka import TopicPartition
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    IllegalOperation,
    KafkaError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
)

from engine.kafka.client import REQUEST_SECONDS, KafkaCluster
from engine.kafka.offsets import Position, Positions, committed_positions
from engine.kafka.producer import (
    OnAcknowledged,
    Outgoing,
    Publisher,
    Refusals,
    too_large_error,
)
from engine.kafka.workers import PartitionRestartError, PartitionWorker, Records
from engine.process.failures import Backoff, describe, retry
from engine.process.metrics import Metrics, StepTimer
from engine.process.settings import Settings

_RETRY_SECONDS = 1.0
_BACKOFF_MS = 50
_CLOSE_SECONDS = 1.0
# Permanent errors, which a person has to correct.
_REFUSALS = (
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
)
_TEMPORARY = (KafkaError, OSError, TimeoutError)
# aiokafka raises the last two for a transaction that has failed already.
_LOSSES = (KafkaError, TimeoutError, IllegalOperation, AssertionError)


class TransactionalPublisher(Publisher):
    """Publishes within a transaction, which begins with the first message, until `commit`.

    For one assignment of `partition` to a member of `group`. A refusal for size ends
    the transaction too; `refusals` remembers it for all partitions, so that the same message does
    not end a second transaction. `timed` is around each commit. Raises PartitionRestartError if
    the transaction is lost, and permanent errors (authorisation).
    """

    def __init__(
        self,
        settings: Settings,
        *,
        partition: TopicPartition,
        group: str,
        refusals: Refusals,
        timed: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        options = {
            "transactional_id": f"{group}-{partition.topic}-{partition.partition}",
            # For this time a dead owner's transaction may block consumers that read committed.
            "transaction_timeout_ms": int((REQUEST_SECONDS + 10) * 1000),
            "retry_backoff_ms": _BACKOFF_MS,
        }
        super().__init__(settings, refusals=refusals, options=options)
        self._timed = timed
        self._source = partition
        self._group = group
        self._beginning = asyncio.Lock()

    async def publish(
        self,
        messages: Sequence[Outgoing],
        acknowledged: OnAcknowledged | None = None,
    ) -> None:
        """Publish all within the transaction; returns when the brokers have them.

        Raises MessageTooLargeError when all others are published.
        """
        try:
            async with asyncio.timeout(self._deadline):
                await self._begin()
                failed = await self._send(self._producer, messages, acknowledged)
        except _LOSSES as error:
            raise _classify(error) from error
        for each in failed:
            if not each.is_known_too_large:
                raise _classify(each.error) from each.error
        if failed:
            raise too_large_error(failed)

    async def commit(self, place: Position) -> None:
        """Commit the transaction; the partition continues at `place`."""
        try:
            with self._timed():
                async with asyncio.timeout(self._deadline):
                    await self._begin()
                    await self._producer.send_offsets_to_transaction(
                        {self._source: place.to_commit()}, self._group
                    )
                    await self._producer.commit_transaction()
        except _LOSSES as error:
            raise _classify(error) from error
        self.is_open = False

    async def close(self) -> None:
        """Disconnect. The next owner aborts an open transaction."""
        await super().close()
        with suppress(KafkaError, TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._producer.client.close()  # a stop() that is cancelled leaves it open

    async def _begin(self) -> None:
        async with self._beginning:
            if not self.is_open:
                await self._producer.begin_transaction()
                self.is_open = True


def _classify(error: Any) -> Exception:
    """The error itself if it is permanent, else PartitionRestartError."""
    if isinstance(error, _REFUSALS):
        return cast(Exception, error)
    return PartitionRestartError(describe(error))


@dataclass(kw_only=True, eq=False)
class Transactions:
    """The producers of one process for one role, by partition; loads their positions.

    The order of taking over a partition matters. First its producer starts, which aborts the open
    transaction of the previous owner and fences that owner. Only then is the committed offset read,
    at which the partition continues. `make` makes a worker as the consumer's `worker_for` does; it
    gets a publisher too, which it closes, and uses no other.
    """

    settings: Settings
    cluster: KafkaCluster
    group: str
    role: str
    metrics: Metrics
    make: Callable[..., PartitionWorker]

    def __post_init__(self) -> None:
        self._step = StepTimer(self.metrics, self.role)
        self._errors = self.metrics.kafka_errors
        self._refusals = Refusals()
        self._publishers: dict[TopicPartition, TransactionalPublisher] = {}

    async def load(self, partitions: Collection[TopicPartition]) -> Positions:
        """The committed positions, read after all previous owners are fenced.

        `partitions` are all of this member, or some that begin again.
        """
        await asyncio.gather(*(self._start(each) for each in partitions))
        return await committed_positions(self.cluster, self.group, self._errors, partitions)

    def worker_for(
        self, partition: TopicPartition, begin: Position, on_progress: Callable[[], None]
    ) -> PartitionWorker:
        """A worker for a partition whose position was loaded."""
        return self.make(partition, begin, on_progress, self._publishers.pop(partition))

    async def _start(self, partition: TopicPartition) -> None:
        """A started producer. Waits while the brokers are down."""
        left = self._publishers.pop(partition, None)
        if left is not None:
            await left.close()

        async def start() -> TransactionalPublisher:
            publisher = TransactionalPublisher(
                self.settings,
                partition=partition,
                group=self.group,
                refusals=self._refusals,
                timed=lambda: self._step("commit"),
            )
            try:
                await publisher.start()
            except BaseException:
                await publisher.close()
                raise
            return publisher

        self._publishers[partition] = await retry(
            start,
            self._errors,
            "starting a transactional producer",
            may_recover=lambda error: (
                isinstance(error, _TEMPORARY) and not isinstance(error, _REFUSALS)
            ),
            backoff=Backoff(_RETRY_SECONDS, _RETRY_SECONDS),
        )


# A transaction without a message only moves the offset, which can wait for the next transaction.
_IDLE_SECONDS = 0.5


class TransactionalWorker(PartitionWorker):
    """Handles one batch after another, each in a transaction.

    The batch goes through a worker of the role. It is done when that worker has finished all of it,
    and committed with the transaction; the consumer never commits this worker's offsets. If a batch
    fails, the worker ends and with it the role's memory of the batch.
    """

    def __init__(
        self,
        partition: TopicPartition,
        *,
        publisher: TransactionalPublisher,
        inner: Callable[[Callable[[], None]], PartitionWorker],
        begin: Position,
        batch_records: int,
        on_progress: Callable[[], None],
    ) -> None:
        self._publisher = publisher
        self._handled = self._committed = Position(begin.offset, begin.topic_id)
        self._next_commit = 0.0
        self._inner_moved = asyncio.Event()
        self._inner = inner(self._inner_moved.set)
        super().__init__(partition, begin, on_progress, batch_records)

    def note_lag(self, lag: int, asked_at: float) -> None:
        """The role's worker may have something to publish that no record leads to."""
        self._inner.note_lag(lag, asked_at)
        self._moved.set()

    async def abandon(self) -> None:
        """End at once; the batch in flight is not committed."""
        await super().abandon()
        await self._inner.abandon()
        await self._publisher.close()

    async def wait_for_records(self) -> None:
        """Wait for records. If none come, commit what is finished."""
        with suppress(TimeoutError):
            async with asyncio.timeout(None if self._committed == self._handled else _IDLE_SECONDS):
                await super().wait_for_records()
        if not self._queue:
            await self._finish_inner()
            await self._commit()

    async def handle(self, batch: Records) -> None:
        """Pass the batch to the role's worker, and commit what it has published."""
        self._inner.offer(batch)
        await self._finish_inner()
        self._handled = self._handled._replace(offset=batch[-1].offset + 1)
        if self._closing or self._publisher.is_open or time.monotonic() >= self._next_commit:
            await self._commit()

    async def _commit(self) -> None:
        if self._publisher.is_open or self._committed != self._handled:
            self._committed = self._handled
            await self._publisher.commit(self._handled)
            self._next_commit = time.monotonic() + _IDLE_SECONDS

    async def _finish_inner(self) -> None:
        while self._inner.pending:
            if self._inner.failure is not None:
                raise self._inner.failure
            await self._inner_moved.wait()
            self._inner_moved.clear()
