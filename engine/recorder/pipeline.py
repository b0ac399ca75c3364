"""The role `recorder`: from the topics to exact figures in SQL.

decode -> look up -> one transaction: the partition's offset, devices and their counters, traces,
receptions, statistics. The offset moves only from the value that this recorder knows: whoever
else has written the batch, or part of it, has moved it, and then what is left is written.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeVar

import structlog
from aiokafka import TopicPartition

from engine.kafka.partition_worker import Records
from engine.process.failures import database_may_recover, describe, took_too_long
from engine.process.metrics import Metrics, StepTimer
from engine.process.retry import Backoff
from engine.recorder.ledger import (
    AlreadyCountedError,
    CompanyGoneError,
    DayMadeError,
    Entry,
    Ledger,
)

log = structlog.get_logger(__name__)

ROLE = "recorder"
_UNLIMITED = 1_000_000  # records; consumers give less
_LONGEST_PAUSE = 5.0
_SLOW_TRIES = 3  # then a batch may be too large for the time that a statement has

Result = TypeVar("Result")


class OffsetsError(Exception):
    """SQL and Kafka do not belong together; the message says what to do."""


class _OvertakenError(Exception):
    """The offset in SQL is not the one that this recorder knows."""


class _TooSlowError(Exception):
    """Again and again a transaction did not end in the time that it has."""


class Batch(Protocol):
    """What was read from records, ready to be written, as often as need be."""

    async def write(self, entry: Entry) -> Mapping[str, int]:
        """Write all of it; the rows written, by table."""


class Reader(Protocol):
    """What is done with the records of one topic."""

    async def read(self, records: Records) -> Batch:
        """Decode, look up what the transaction need not see, put aside what is bad. Raises what
        the database raises."""


class Recorder:
    """What the partitions of one process share. `deadline` (seconds) bounds one transaction.

    `readers` makes a reader for a partition of a topic.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        readers: Mapping[str, Callable[[], Reader]],
        metrics: Metrics,
        deadline: float,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.ledger = ledger
        self.readers = readers
        self.metrics = metrics
        self.deadline = deadline
        self.clock = clock
        self.step = StepTimer(metrics, ROLE, clock)

    def for_partition(self, partition: TopicPartition) -> "PartitionRecorder":
        """The handler for one assignment of one partition."""
        return PartitionRecorder(self, partition)

    async def next_offsets(self, topic: str) -> Mapping[int, int]:
        """The first record that is not recorded, by partition. Waits for SQL."""
        return await self.until_sql_answers(lambda: self.ledger.next_offsets(topic))

    async def until_sql_answers(
        self, call: Callable[[], Awaitable[Result]], *, may_be_split: bool = False
    ) -> Result:
        """The result of `call`, tried again with backoff for as long as SQL does not answer.

        The partition waits meanwhile: backpressure, not loss. What `may_be_split` and is cut off
        for its time again and again raises _TooSlowError.
        """
        backoff, slow = Backoff(last=_LONGEST_PAUSE), 0
        while True:
            try:
                async with asyncio.timeout(self.deadline):
                    result = await call()
            except Exception as error:  # sorted: passes again, or goes up and stops the process
                answered = isinstance(error, AlreadyCountedError | DayMadeError)
                if not (answered or database_may_recover(error)):
                    raise
                if answered:
                    self.metrics.sql_errors.inc()
                    log.warning("a batch is written again", error=describe(error))
                else:
                    self.metrics.sql_errors.failed(error, "recording")
                slow += took_too_long(error)
                if may_be_split and slow >= _SLOW_TRIES:
                    raise _TooSlowError from error
            else:
                self.metrics.sql_errors.answered("recording")
                return result
            await backoff.pause()


class PartitionRecorder:
    """The data path for one partition, in order; implements BatchHandler."""

    def __init__(self, shared: Recorder, partition: TopicPartition) -> None:
        self._shared = shared
        self._step = shared.step
        self._topic, self._partition = partition
        self._reader = shared.readers[partition.topic]()
        self._next: int | None = None
        self._knows = False
        self._most = _UNLIMITED

    async def handle(self, records: Records) -> None:
        """Write what the records lead to, once. Raises what no retry can mend."""
        rest = await self._unrecorded(records)
        while rest:
            piece = rest[: self._most]
            if await self._record(piece):
                rest = rest[len(piece) :]
                continue
            # Another recorder was here, or we were, and the answer to the commit was lost; or a
            # company has gone; or the piece was too large.
            log.warning("looking at a batch again", topic=self._topic, partition=self._partition)
            rest = await self._unrecorded(rest)

    async def _record(self, records: Records) -> bool:
        """Read and write; False if the offset in SQL is not the one that we know, if what was
        read is true no more, or if it takes longer than a statement may."""
        shared = self._shared
        end = records[-1].offset + 1
        with self._step("read"):
            batch = await shared.until_sql_answers(lambda: self._reader.read(records))
        try:
            with self._step("write"):
                await shared.until_sql_answers(
                    lambda: self._write(batch, end), may_be_split=len(records) > 1
                )
        except (_OvertakenError, CompanyGoneError):
            return False
        except _TooSlowError:
            self._most = len(records) // 2
            log.warning("a batch takes too long, halving it", records=self._most)
            return False
        self._most = min(2 * self._most, _UNLIMITED)
        shared.metrics.batch_size.observe(len(records))
        return True

    async def _unrecorded(self, records: Records) -> Records:
        """The records from the offset in SQL on, which is read again unless it is known."""
        if not self._knows:
            offsets = await self._shared.next_offsets(self._topic)
            self._look_at(offsets.get(self._partition))
        if self._next is None or records[0].offset >= self._next:
            return records
        return [record for record in records if record.offset >= self._next]

    def _look_at(self, found: int | None) -> None:
        if self._next is not None and (found is None or found < self._next):
            raise OffsetsError(
                f"the recorded offset of {self._topic}/{self._partition} went back from "
                f"{self._next} to {found}: was SQL restored? Start the recorder again"
            )
        self._next, self._knows = found, True

    async def _write(self, batch: Batch, end: int) -> None:
        shared = self._shared
        begin = shared.clock()
        self._knows = False  # until the commit is answered
        async with shared.ledger.entry() as entry:
            if not await entry.advance(self._topic, self._partition, self._next, end):
                raise _OvertakenError
            written = await batch.write(entry)
        self._next, self._knows = end, True
        shared.metrics.recorder_transactions.observe(shared.clock() - begin)
        for table, count in written.items():
            shared.metrics.recorder_rows.labels(table).inc(count)
