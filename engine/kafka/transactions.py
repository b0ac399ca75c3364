"""Publishing in transactions: what is published, and the offset behind its cause, or neither.

A producer a partition, whose transactional id is `<group>-<topic>-<partition>`. When the next owner
of the partition starts its producer under the same id, the brokers end what the last one left open
and refuse whatever that one sends from then on. That is the fence: aiokafka's offsets in a
transaction carry no generation of the group.

Nothing is repaired here. After any error the producer is given up with its transaction, and the
partition begins again as if it were newly assigned: with a fresh producer, from what is committed
then. So it does not matter whether a commit whose answer was lost has happened.
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

from engine.kafka.batch_sender import TopicLimits
from engine.kafka.errors import MessageTooLargeError, TransactionLostError
from engine.kafka.positions import Position
from engine.kafka.publisher import Outgoing, Publisher
from engine.kafka.record_time import RecordTime
from engine.process.failures import describe

log = structlog.get_logger(__name__)

# A person has to mend these.
REFUSALS = (
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
)
# The last two are what aiokafka says of a transaction that has failed already.
_LOSSES = (KafkaError, TimeoutError, IllegalOperation, AssertionError)


class TransactionalPublisher(Publisher):
    """Publishes within a transaction, which begins with the first message, until `commit`.

    For one assignment of `partition` to a member of `group`. A refusal for size or date ends the
    transaction too. `limits` and `record_time` remember it for all partitions, so that no second
    transaction ends of the same message. `timed` is around each commit.
    Raises TransactionLostError, and what a person has to mend (authorisation).
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

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """Publish all within the transaction; returns when the brokers have them.

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
        """Commit the transaction, with `place` as where the partition goes on."""
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
        """Disconnect within the deadline. An open transaction is ended by the next owner."""
        await super().close()
        with suppress(KafkaError, TimeoutError):
            async with asyncio.timeout(self._deadline):
                await self._producer.client.close()  # stop() leaves it open when it is cut short
        _forget_errors(self._producer)

    async def _begin(self) -> None:
        async with self._beginning:
            if not self.is_open:
                await self._producer.begin_transaction()
                self.is_open = True


def _forget_errors(producer: Any) -> None:
    """Whoever published was told; asyncio must not tell again what aiokafka keeps of it."""
    kept = [producer._txn_manager.wait_for_transaction_end()]  # noqa: SLF001
    for batches in producer._message_accumulator._batches.values():  # noqa: SLF001
        kept += [batch._drain_waiter for batch in batches]  # noqa: SLF001
    for future in kept:
        if future is not None and future.done() and not future.cancelled():
            future.exception()


def _sorted(error: Any) -> Exception:
    """The error itself if a person has to mend it."""
    if isinstance(error, REFUSALS):
        return cast(Exception, error)
    return TransactionLostError(describe(error))
