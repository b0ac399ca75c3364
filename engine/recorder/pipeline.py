"""The role `recorder`: from the topics to exact counters in SQL.

records -> read (decode, dead letters, look-ups) -> one transaction: move the partition's offset,
count, aggregate, write. The offset moves only from the value that this recorder knows. If another
recorder has advanced it, only the records after the new offset are written.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import structlog
from aiokafka import TopicPartition

from engine.kafka.partition_worker import Records
from engine.process.metrics import Metrics, StepTimer
from engine.recorder.aggregate import ChangesByDevice, NewRows, rows_of_changes
from engine.recorder.errors import (
    OffsetMovedError,
    OffsetsError,
    ReadAgainError,
    TransactionTooSlowError,
)
from engine.recorder.ledger import Ledger, LedgerTransaction
from engine.recorder.rows import DetectionRow, DeviceColumns, PresenceKey
from engine.recorder.sql_retry import SqlRetry
from engine.redis.recent_detections import BeaconMinute

log = structlog.get_logger(__name__)

ROLE = "recorder"
_UNLIMITED = 1_000_000  # records; consumers give less
_QUICKLY = 0.25  # of the deadline: a transaction with twice as many records ends in time, too

Batch = TypeVar("Batch")


class CountedBatch(Protocol):
    """The records of a batch that count. Pure."""

    def device_updates(self) -> ChangesByDevice | DeviceColumns:
        """The additions to the counters of devices, and the known facts of devices; empty if
        nothing counts."""

    def rows(self, devices: Any, now: float) -> NewRows:
        """The other rows to write. `devices` are StoredDevices, or if the updates were columns, a
        sequence of ToldDevice. `now` is SQL's clock in epoch seconds."""


class RecordReader(Protocol[Batch]):
    """Reads and counts the records of one topic. All partitions share it."""

    async def read(self, records: Records) -> Batch:
        """Decode the records and publish dead letters.

        Also makes the look-ups that the transaction need not see. Raises the database's errors.
        """

    async def count(self, transaction: LedgerTransaction, batch: Batch) -> CountedBatch:
        """Find the records of the batch that count. Called again if the transaction is repeated."""


class Recorder:
    """The objects that the partitions of one process share.

    `deadline` (seconds) bounds one transaction; `largest_pieces` has the most records that a
    transaction takes, by topic. `on_recent` is told the committed detections of the last minutes.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        readers: Mapping[str, RecordReader[Any]],
        metrics: Metrics,
        deadline: float,
        on_recent: Callable[[Mapping[BeaconMinute, int]], None] = lambda _counts: None,
        largest_pieces: Mapping[str, int] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.ledger = ledger
        self.readers = readers
        self.metrics = metrics
        self.sql = SqlRetry(metrics.sql_errors, deadline)
        self.quickly = _QUICKLY * deadline
        self.on_recent = on_recent
        self.largest_pieces = largest_pieces or {}
        self.clock = clock
        self.step = StepTimer(metrics, ROLE, clock)

    def for_partition(self, partition: TopicPartition) -> "PartitionRecorder":
        """The handler for one assignment of one partition."""
        return PartitionRecorder(self, partition)


class PartitionRecorder:
    """Records one partition, in order; implements BatchHandler."""

    def __init__(self, shared: Recorder, partition: TopicPartition) -> None:
        self._shared = shared
        self._step = shared.step
        self._topic, self._partition = partition
        self._reader = shared.readers[partition.topic]
        self._next: int | None = None
        self._knows_next = False
        self._largest_piece = self._limit = shared.largest_pieces.get(self._topic, _UNLIMITED)

    async def handle(self, records: Records) -> None:
        """Record each of the records once. Raises permanent errors."""
        rest = await self._unrecorded(records)
        while rest:
            piece = rest[: self._largest_piece]
            try:
                await self._record(piece)
            except ReadAgainError as error:
                if isinstance(error, TransactionTooSlowError):
                    self._largest_piece = len(piece) // 2
                log.warning(
                    "batch_retried",
                    reason=error.reason,
                    topic=self._topic,
                    partition=self._partition,
                    records=min(len(rest), self._largest_piece),
                )
                rest = await self._unrecorded(rest)
            else:
                rest = rest[len(piece) :]

    async def _unrecorded(self, records: Records) -> Records:
        """The records from the offset in SQL on. The offset is read from SQL unless it is known."""
        if not self._knows_next:
            ledger, sql = self._shared.ledger, self._shared.sql
            positions = await sql.until_answered(lambda: ledger.positions(self._topic))
            found = positions.get(self._partition)
            self._note_next(None if found is None else found.offset)
        if self._next is None or records[0].offset >= self._next:
            return records
        return [record for record in records if record.offset >= self._next]

    def _note_next(self, found: int | None) -> None:
        if self._next is not None and (found is None or found < self._next):
            raise OffsetsError(
                f"the recorded offset of {self._topic}/{self._partition} went back from "
                f"{self._next} to {found}: was SQL restored? Start the recorder again"
            )
        self._next, self._knows_next = found, True

    async def _record(self, records: Records) -> None:
        """Read and write the records, with retries while SQL is down. Raises ReadAgainError."""
        sql, end = self._shared.sql, records[-1].offset + 1
        with self._step("read"):
            batch = await sql.until_answered(lambda: self._reader.read(records))
        begin = self._shared.clock()
        with self._step("write"):
            await sql.until_answered(lambda: self._write(batch, end), may_be_split=len(records) > 1)
        if self._shared.clock() - begin < self._shared.quickly:
            self._largest_piece = min(2 * self._largest_piece, self._limit)
        self._shared.metrics.batch_size.observe(len(records))

    async def _write(self, batch: object, end: int) -> None:
        """Write the offset and all rows of the batch in one transaction."""
        metrics, begin = self._shared.metrics, self._shared.clock()
        self._knows_next = False  # until the commit has been acknowledged
        async with self._shared.ledger.transaction() as transaction:
            if not await transaction.advance_offset(self._topic, self._partition, self._next, end):
                raise OffsetMovedError
            counted = await self._reader.count(transaction, batch)
            written, recent = await _write_rows(transaction, counted)
        self._next, self._knows_next = end, True
        metrics.recorder_transactions.observe(self._shared.clock() - begin)
        for table, count in written.items():
            metrics.recorder_rows.labels(table).inc(count)
        if recent:
            self._shared.on_recent(recent)


class _Written(NamedTuple):
    rows: Mapping[str, int]  # by table
    recent: Mapping[BeaconMinute, int]


async def _write_rows(transaction: LedgerTransaction, counted: CountedBatch) -> _Written:
    """Write the devices and the rows that need their ids."""
    updates = counted.device_updates()
    if not updates:
        return _Written({}, {})
    now = await transaction.now()
    devices: Any
    if isinstance(updates, DeviceColumns):
        devices = await transaction.add_device_columns(updates, now)
    else:
        devices = await transaction.add_devices(updates, now)
    rows = counted.rows(devices, now.timestamp())
    detections = rows.detections
    if rows.only_changes:
        detections = await _only_changes(transaction, detections)
    await transaction.add_detections(detections)
    await transaction.add_authentications(rows.authentications)
    await transaction.add_receptions(rows.receptions)
    if rows.statistics is not None:
        figures = rows.statistics
        await transaction.add_statistics(figures.figures, figures.devices, figures.new_devices)
    written = {
        "device": len(devices),
        "detection_trace": len(detections),
        "authentication_trace": len(rows.authentications),
        "reception": len(rows.receptions),
    }
    return _Written(written, rows.recent)


async def _only_changes(
    transaction: LedgerTransaction, rows: Sequence[DetectionRow]
) -> list[DetectionRow]:
    """The rows that differ from the last rows; they are stored as the new last rows."""
    states = await transaction.presences({PresenceKey(r.device_id, r.beacon_id) for r in rows})
    kept = rows_of_changes(rows, states)
    changed = {PresenceKey(row.device_id, row.beacon_id) for row in kept}
    await transaction.set_presences({key: states[key] for key in changed})
    return kept
