"""The role `recorder`: from the topics to exact counters in SQL.

records -> read (decode, dead letters, look-ups) -> one transaction: move the partition's offset,
count, aggregate, write. The offset moves only from the value that this recorder knows. If SQL has
another one, because another recorder has written or the answer of a commit was lost, the partition
begins again at the offset in SQL.
"""

import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import structlog
from aiokafka import TopicPartition
from asyncpg import IntegrityConstraintViolationError
from sqlalchemy.exc import IntegrityError

from catalog.bounds import chunked
from engine.kafka.offsets import Position, Positions
from engine.kafka.workers import PartitionRestartError, PartitionWorker, Records
from engine.process.failures import database_may_recover, retry, took_too_long
from engine.process.metrics import Metrics, StepTimer
from engine.recorder.ledger import DetectionRow, Ledger, LedgerTransaction
from engine.recorder.readers import NewRows, RecordReader
from engine.redis.figures import BeaconMinute

log = structlog.get_logger(__name__)

ROLE = "recorder"
# A company was deleted, an id was counted, or the day of a trace is not created yet.
_CONFLICTS = (IntegrityError, IntegrityConstraintViolationError)
_MINUTE = timedelta(minutes=1)

Result = TypeVar("Result")


@dataclass(kw_only=True)
class Recorder:
    """What the partitions of one process share.

    `deadline` (seconds) bounds one transaction. `on_recent` is told the committed detections of the
    last minutes. `stored` has the positions that were last loaded from SQL.
    """

    ledger: Ledger
    readers: Mapping[str, RecordReader]
    metrics: Metrics
    deadline: float
    on_recent: Callable[[Mapping[BeaconMinute, int]], None]
    stored: dict[TopicPartition, Position | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.step = StepTimer(self.metrics, ROLE)

    async def until_answered(
        self, call: Callable[[], Awaitable[Result]], *, may_be_split: bool = False
    ) -> Result:
        """The result of `call`, with retries and backoff while SQL is down or reports a conflict:
        another transaction has changed what this one has read.

        A call that `may_be_split` raises the error of its deadline.
        """

        def may_recover(error: Exception) -> bool:
            if may_be_split and took_too_long(error):
                return False
            return isinstance(error, _CONFLICTS) or database_may_recover(error)

        return await retry(
            call,
            self.metrics.sql_errors,
            "recording",
            may_recover=may_recover,
            deadline=self.deadline,
        )

    async def load(self, partitions: Collection[TopicPartition]) -> Positions:
        """The recorded positions. Waits while SQL is down."""
        found: dict[TopicPartition, Position] = {}
        for topic in {partition.topic for partition in partitions}:
            positions = await self.until_answered(partial(self.ledger.positions, topic))
            found |= {TopicPartition(topic, number): at for number, at in positions.items()}
        self.stored.update((each, found.get(each)) for each in partitions)
        return {each: found[each] for each in partitions if each in found}


class PartitionRecorder(PartitionWorker):
    """Records one assignment of one partition, in order, from the position `begin` on."""

    def __init__(
        self,
        shared: Recorder,
        partition: TopicPartition,
        begin: Position,
        on_progress: Callable[[], None],
        *,
        batch_records: int,
    ) -> None:
        self._shared = shared
        self._topic = partition.topic
        self._reader = shared.readers[partition.topic]
        self._stored = shared.stored.get(partition)
        super().__init__(partition, begin, on_progress, batch_records)

    async def handle(self, batch: Records) -> None:
        """Record each of the records once.

        Raises permanent errors, and PartitionRestartError if the offset in SQL is another one.
        """
        for piece in chunked(batch, self._reader.largest_piece):
            await self._record(piece)

    async def _record(self, records: Records) -> None:
        """Read and write the records, with retries while SQL is down; in halves if SQL is slow."""
        shared, end = self._shared, records[-1].offset + 1
        with shared.step("read"):
            batch = await shared.until_answered(lambda: self._reader.read(records))
        try:
            with shared.step("write"):
                await shared.until_answered(
                    lambda: self._write(batch, end), may_be_split=len(records) > 1
                )
        except Exception as error:
            if len(records) == 1 or not took_too_long(error):
                raise
            shared.metrics.sql_errors.inc()
            log.warning("batch_retried", reason="too_slow", topic=self._topic)
            for half in chunked(records, -(-len(records) // 2)):
                await self._record(half)
        else:
            shared.metrics.batch_size.observe(len(records))

    async def _write(self, batch: list[Any], end: int) -> None:
        """Write the offset and all rows of the batch in one transaction."""
        metrics, begin = self._shared.metrics, time.perf_counter()
        new = self._position._replace(offset=end)
        async with self._shared.ledger.transaction() as transaction:
            if not await transaction.move_position(
                self._topic, self.partition.partition, self._stored, new
            ):
                raise PartitionRestartError(f"SQL has another offset than {self._stored}")
            devices, rows = await self._write_rows(transaction, batch)
        self._stored = self._position = new
        metrics.recorder_transactions.observe(time.perf_counter() - begin)
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
        if self._reader.trace == "changes":
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
    """The rows that differ from the previous row of the device at the place: in another zone, or a
    minute or more later. They are stored as the new last rows."""
    states = await transaction.presences({row.presence for row in rows})
    kept = []
    for row in rows:
        last = states.get(row.presence)
        if last is None or row.status != last[0] or row.create_on - last[1] >= _MINUTE:
            states[row.presence] = row.status, row.create_on
            kept.append(row)
    await transaction.set_presences({row.presence: states[row.presence] for row in kept})
    return kept
