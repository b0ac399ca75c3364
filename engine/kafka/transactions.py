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
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, cast

import structlog
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    IllegalOperation,
    KafkaError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
)

from engine.kafka.batch_sender import OnAcknowledged, TopicLimits
from engine.kafka.errors import MessageTooLargeError, TransactionLostError
from engine.kafka.positions import Position
from engine.kafka.publisher import Outgoing, Publisher
from engine.kafka.record_time import RecordTime
from engine.process.failures import describe

log = structlog.get_logger(__name__)

# Permanent errors, which a person has to correct.
REFUSALS = (
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
)
# aiokafka raises the last two for a transaction that has failed already.
_LOSSES = (KafkaError, TimeoutError, IllegalOperation, AssertionError)


class TransactionalPublisher(Publisher):
    """Publishes within a transaction, which begins with the first message, until `commit`.

    For one assignment of `partition` to a member of `group`. A refusal for size or timestamp ends
    the transaction too; `limits` and `record_time` remember it for all partitions, so that the same
    message does not end a second transaction. `timed` is around each commit. Raises
    TransactionLostError, and permanent errors (authorisation).
    """

    def __init__(
        self,
        *,
        make: Callable[[], AIOKafkaProducer],
        deadline: float,
        partition: TopicPartition,
        group: str,
        limits: TopicLimits,
        record_time: RecordTime | None = None,
        timed: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        super().__init__(make=make, deadline=deadline, limits=limits, record_time=record_time)
        self._timed = timed
        self._source = partition
        self._group = group
        self._beginning = asyncio.Lock()
        self.is_open = False

    async def publish(
        self, messages: Sequence[Outgoing], _acknowledged: OnAcknowledged | None = None
    ) -> None:
        """Publish all within the transaction; returns when the brokers have them.

        `_acknowledged` is not called: nothing is finished before all is.
        Raises MessageTooLargeError when all others are published.
        """
        fitting, too_large = self._split(messages)
        try:
            async with asyncio.timeout(self._deadline):
                await self._begin()
                failed = await self._sender.send(self._producer, fitting)
        except _LOSSES as error:
            raise _sorted(error) from error
        if failed:
            raise _sorted(failed[0].error) from failed[0].error
        if too_large:
            raise MessageTooLargeError(too_large)

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
            raise _sorted(error) from error
        self.is_open = False

    async def close(self) -> None:
        """Disconnect within the deadline. The next owner aborts an open transaction."""
        await super().close()
        with suppress(KafkaError, TimeoutError):
            async with asyncio.timeout(self._deadline):
                await self._producer.client.close()  # a stop() that is cancelled leaves it open
        _forget_errors(self._producer)

    async def _begin(self) -> None:
        async with self._beginning:
            if not self.is_open:
                await self._producer.begin_transaction()
                self.is_open = True


def _forget_errors(producer: Any) -> None:
    """Retrieve the errors that aiokafka stores; the publisher has raised them already."""
    kept = [producer._txn_manager.wait_for_transaction_end()]  # noqa: SLF001
    for batches in producer._message_accumulator._batches.values():  # noqa: SLF001
        kept += [batch._drain_waiter for batch in batches]  # noqa: SLF001
    for future in kept:
        if future is not None and future.done() and not future.cancelled():
            future.exception()


def _sorted(error: Any) -> Exception:
    """The error itself if it is permanent, else TransactionLostError."""
    if isinstance(error, REFUSALS):
        return cast(Exception, error)
    return TransactionLostError(describe(error))
