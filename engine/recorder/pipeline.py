"""The role `recorder`: from the topics to exact counters in SQL.

records -> read (decode, dead letters, look-ups) -> one transaction: move the partition's offset,
count, aggregate, write. The offset moves only from the value that this recorder knows. If another
recorder has advanced it, only the records after the new offset are written.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import structlog
from aiokafka import TopicPartition

from engine.kafka.offsets import Position
from engine.kafka.tracing import Span, Tracer
from engine.kafka.workers import Records
from engine.process.failures import Backoff, database_may_recover, took_too_long
from engine.process.metrics import Metrics, StepTimer
from engine.recorder.ledger import (
    DayMissingError,
    DetectionRow,
    Ledger,
    LedgerTransaction,
    OffsetsError,
    ReadAgainError,
)
from engine.recorder.readers import NewRows, RecordReader, rows_of_changes
from engine.redis.figures import BeaconMinute

log = structlog.get_logger(__name__)

ROLE = "recorder"
_UNLIMITED = 1_000_000  # records; consumers give less
_QUICKLY = 0.25  # of the deadline: a transaction with twice as many records ends in time, too
_LONGEST_PAUSE = 5.0

Result = TypeVar("Result")


@dataclass(kw_only=True)
class Recorder:
    """What the partitions of one process share; implements PositionStore with recorder_offset.

    `deadline` (seconds) bounds one transaction; `largest_pieces` has the most records that a
    transaction takes, by topic. `on_recent` is told the committed detections of the last minutes.
    """

    ledger: Ledger
    readers: Mapping[str, RecordReader]
    metrics: Metrics
    deadline: float
    on_recent: Callable[[Mapping[BeaconMinute, int]], None] = lambda _counts: None
    largest_pieces: Mapping[str, int] = field(default_factory=dict)
    tracer: Tracer = field(default_factory=Tracer)
    clock: Callable[[], float] = time.perf_counter

    def __post_init__(self) -> None:
        self.step = StepTimer(self.metrics, ROLE, self.clock)

    def for_partition(self, partition: TopicPartition) -> "PartitionRecorder":
        """The handler for one assignment of one partition."""
        return PartitionRecorder(self, partition)

    async def until_answered(
        self, call: Callable[[], Awaitable[Result]], *, may_be_split: bool = False
    ) -> Result:
        """The result of `call`, with retries and backoff while SQL is down or reports a conflict.

        The partition waits meanwhile, which is backpressure and loses nothing. If a call that
        `may_be_split` times out, ReadAgainError is raised.
        """
        backoff, errors = Backoff(last=_LONGEST_PAUSE), self.metrics.sql_errors
        while True:
            try:
                async with asyncio.timeout(self.deadline):
                    result = await call()
            except Exception as error:  # permanent errors are raised
                if not database_may_recover(error):
                    raise
                errors.failed(error, "recording")
                if may_be_split and took_too_long(error):
                    raise ReadAgainError("too_slow") from error
            else:
                errors.answered("recording")
                return result
            await backoff.pause()

    async def load(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Position]:
        """The recorded positions. Waits while SQL is down."""
        found: dict[TopicPartition, Position] = {}
        for topic in {partition.topic for partition in partitions}:
            positions = await self.until_answered(partial(self.ledger.positions, topic))
            found |= {TopicPartition(topic, number): at for number, at in positions.items()}
        return {each: found[each] for each in partitions if each in found}

    async def replace(
        self, old: Mapping[TopicPartition, Position], new: Mapping[TopicPartition, Position]
    ) -> bool:
        """Write the new positions, so that no batch is compared with the offsets of another topic.

        False if another recorder has written meanwhile, or if this one has and the answer was lost.
        """
        for partition, place in new.items():
            move = partial(self._move, partition, old.get(partition), place)
            if not await self.until_answered(move):
                return False
        return True

    async def _move(self, partition: TopicPartition, old: Position | None, new: Position) -> bool:
        topic, number = partition
        async with self.ledger.transaction() as transaction:
            return await transaction.move_position(topic, number, old, new)


class PartitionRecorder:
    """Records one partition, in order."""

    def __init__(self, shared: Recorder, partition: TopicPartition) -> None:
        self._shared = shared
        self._topic, self._partition = partition
        self._reader = shared.readers[partition.topic]
        self._next: Position | None = None
        self._knows_next = False
        self._largest_piece = self._limit = shared.largest_pieces.get(self._topic, _UNLIMITED)

    async def handle(self, records: Records) -> None:
        """Record each of the records once. Raises permanent errors."""
        spans = self._spans(records)
        rest = await self._unrecorded(records)
        while rest:
            piece = rest[: self._largest_piece]
            try:
                await self._record(piece)
            except ReadAgainError as error:
                self._largest_piece = max(1, len(piece) // 2)
                log.warning("batch_retried", reason=str(error), topic=self._topic)
                rest = await self._unrecorded(rest)
            else:
                rest = rest[len(piece) :]
        for span in spans:
            span.end("recorded")

    def _spans(self, records: Records) -> list[Span]:
        """A span for each record with a trace context, from its arrival to its commit in SQL."""
        begin = partial(self._shared.tracer.begin, "proximity.recorder")
        where = {
            "messaging.system": "kafka",
            "messaging.destination.name": self._topic,
            "messaging.destination.partition.id": str(self._partition),
        }
        return [
            begin(record.headers, where | {"messaging.kafka.offset": record.offset})
            for record in records
            if record.headers
        ]

    async def _unrecorded(self, records: Records) -> Records:
        """The records from the offset in SQL on. The offset is read from SQL unless it is known."""
        if not self._knows_next:
            positions = await self._shared.until_answered(
                lambda: self._shared.ledger.positions(self._topic)
            )
            found, known = positions.get(self._partition), self._next
            if known is not None and (found is None or found.offset < known.offset):
                raise OffsetsError(
                    f"the recorded offset of {self._topic}/{self._partition} went back from "
                    f"{known.offset} to {found and found.offset}: was SQL restored? "
                    "Start the recorder again"
                )
            self._next, self._knows_next = found, True
        if self._next is None or records[0].offset >= self._next.offset:
            return records
        return [record for record in records if record.offset >= self._next.offset]

    async def _record(self, records: Records) -> None:
        """Read and write the records, with retries while SQL is down. Raises ReadAgainError."""
        shared, end = self._shared, records[-1].offset + 1
        with shared.step("read"):
            batch = await shared.until_answered(lambda: self._reader.read(records))
        begin = shared.clock()
        with shared.step("write"):
            await shared.until_answered(
                lambda: self._write(batch, end), may_be_split=len(records) > 1
            )
        if shared.clock() - begin < _QUICKLY * shared.deadline:
            self._largest_piece = min(2 * self._largest_piece, self._limit)
        shared.metrics.batch_size.observe(len(records))

    async def _write(self, batch: list[Any], end: int) -> None:
        """Write the offset and all rows of the batch in one transaction."""
        ledger, metrics, begin = self._shared.ledger, self._shared.metrics, self._shared.clock()
        new = Position(end, None if self._next is None else self._next.topic_id)
        self._knows_next = False  # until the commit has been acknowledged
        try:
            async with ledger.transaction() as transaction:
                if not await transaction.move_position(
                    self._topic, self._partition, self._next, new
                ):
                    raise ReadAgainError("offset_moved")
                devices, rows = await self._write_rows(transaction, batch)
        except DayMissingError as error:
            await ledger.create_days(error.days)
            await self._write(batch, end)
            return
        self._next, self._knows_next = new, True
        metrics.recorder_transactions.observe(self._shared.clock() - begin)
        for table, count in (
            ("device", devices),
            ("detection_trace", len(rows.detections)),
            ("authentication_trace", len(rows.authentications)),
            ("reception", len(rows.receptions)),
            ("visit_event", len(rows.visit_events)),
        ):
            metrics.recorder_rows.labels(table).inc(count)
        if rows.recent:
            self._shared.on_recent(rows.recent)

    async def _write_rows(
        self, transaction: LedgerTransaction, batch: list[Any]
    ) -> tuple[int, NewRows]:
        """Write the devices and the rows that need their ids; the number of devices, the rows."""
        counted = await self._reader.count(transaction, batch)
        if not counted:
            return 0, NewRows()
        now = await transaction.now()
        devices = await transaction.add_devices(self._reader.changes(counted))
        rows = self._reader.rows(counted, devices, now.timestamp())
        if self._reader.only_changes:
            rows.detections = await _only_changes(transaction, rows.detections)
        await transaction.add_detections(rows.detections)
        await transaction.add_authentications(rows.authentications)
        await transaction.add_counted("reception", rows.receptions)
        await transaction.add_statistics(rows.figures)
        await transaction.add_counted("visit_event", rows.visit_events)
        await transaction.add_visits(rows.visits)
        return len(devices), rows


async def _only_changes(
    transaction: LedgerTransaction, rows: Sequence[DetectionRow]
) -> list[DetectionRow]:
    """The rows that differ from the last rows; they are stored as the new last rows."""
    states = await transaction.presences({row.presence for row in rows})
    kept = rows_of_changes(rows, states)
    await transaction.set_presences({row.presence: states[row.presence] for row in kept})
    return kept
