"""One partition of the role `trigger`: its queue, its open records, and its progress."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter

from aiokafka import ConsumerRecord, TopicPartition

from catalog.bounds import chunked
from engine.kafka.dead_letters import DeadLetter
from engine.kafka.offsets import OffsetTracker, Position
from engine.kafka.transactions import TransactionalPublisher, TransactionalWorker
from engine.kafka.workers import PartitionWorker, Records
from engine.process.lifecycle import cancel
from engine.redis.visits import VisitsTakenOverError
from engine.trigger.claim_memory import ClaimMemory
from engine.trigger.cycle import Cycle
from engine.trigger.grants import DecidedDetection
from engine.trigger.intake import Intake
from engine.trigger.visits import PartitionVisits, VisitTracking

_TAKEN_AT_ONCE = 250  # records at most; then other tasks have their turn
_LETTERS_AT_ONCE = 16  # so that they delay no other company
_MOST_UNSAVED = 4000  # records whose visits are not written yet, which a crash repeats
_SMALLEST_CYCLE = 64 * 1024
_LARGEST_CYCLE = 1024 * 1024


_value_size = attrgetter("serialized_value_size")
_key_size = attrgetter("serialized_key_size")


def _order(each: DecidedDetection) -> tuple[int, bool]:
    """A visit was silent before the detection that notices it."""
    return each.record.offset, each.event is None or not each.event.is_silent


class InFlightBytes:
    """Counts the bytes of records that are fetched and not finished, against a bound.

    The messages of one cycle have `cycle_bytes` at most, or those of one detection.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.held = 0
        self.cycle_bytes = min(_LARGEST_CYCLE, max(_SMALLEST_CYCLE, most // 64))

    def has_room(self) -> bool:
        """Whether more may be fetched."""
        return self.held < self._most

    def hold(self, size: int) -> None:
        """Add bytes in flight; a negative size subtracts them."""
        self.held += size


def record_bytes(records: Records) -> int:
    """The bytes of the records' keys, values and headers."""
    size: int = sum(map(_value_size, records)) + sum(map(_key_size, records))
    for headers in [record.headers for record in records if record.headers]:
        size += sum(len(name) + len(value or b"") for name, value in headers)
    return size


@dataclass(frozen=True, kw_only=True)
class TriggerRole:
    """The objects that the partitions of one process share."""

    intake: Intake
    cycle: Cycle
    claim_memory: ClaimMemory
    in_flight: InFlightBytes
    batch_records: int
    tracking: VisitTracking

    def worker_for(
        self,
        partition: TopicPartition,
        begin: Position,
        on_progress: Callable[[], None],
        publisher: TransactionalPublisher | None = None,
    ) -> PartitionWorker:
        """The worker for one assignment of one partition; with a `publisher` it has a cycle of its
        own, and a transaction around each batch."""
        if publisher is None:
            return TriggerPartition(partition, begin, on_progress, role=self)
        tracking = replace(self.tracking, publisher=publisher, in_transactions=True)
        cycle = replace(self.cycle, letters=replace(self.cycle.letters, publisher=publisher))
        role = replace(self, cycle=cycle, tracking=tracking)
        return TransactionalWorker(
            partition,
            publisher=publisher,
            inner=partial(TriggerPartition, partition, begin, role=role),
            begin=begin,
            batch_records=self.batch_records,
            on_progress=on_progress,
        )


class TriggerPartition(PartitionWorker):
    """Takes in records in order and puts those that may fire into the cycle, which finishes them.

    `unfinished_sends` and `held_back` belong to the cycle.
    """

    def __init__(
        self,
        partition: TopicPartition,
        begin: Position,
        on_progress: Callable[[], None],
        *,
        role: TriggerRole,
    ) -> None:
        at_once = role.intake.decoders[partition.topic].records_at_once
        super().__init__(partition, begin, on_progress, min(_TAKEN_AT_ONCE, at_once))
        self.remembered = role.claim_memory.for_assignment()
        self.visits = PartitionVisits(role.tracking, partition, begin, self.remembered)
        self.is_abandoned = False
        self.unfinished_sends = 0
        self.held_back: list[DecidedDetection] = []
        self._intake = role.intake
        self._cycle = role.cycle
        self._in_flight = role.in_flight
        self._most_ahead = 2 * role.batch_records
        self._queued_bytes = 0
        self._bytes = 0  # in flight, those of the queue included
        self._offsets = OffsetTracker(begin.offset)
        self._parts: dict[int, int] = {}  # left of records with several detections, by offset
        self._letters: list[DeadLetter] = []
        self._publishing: dict[str, asyncio.Task[None]] = {}
        self._failure: BaseException | None = None
        self._cycle.join(self)

    @property
    def pending(self) -> int:
        """Records offered and not finished, and events of visits."""
        return self._pending + self._offsets.unfinished + self.visits.pending

    @property
    def position(self) -> Position:
        """The one before which all records are finished, and counted in visits."""
        done, unsaved = self._offsets.done, self.visits.unsaved_from
        offset = done if unsaved is None else min(done, unsaved)
        return Position(offset, self._position.topic_id)

    @property
    def failure(self) -> BaseException | None:
        """The error that stopped the partition, or the cycle; or None."""
        return super().failure or self._failure or self._cycle.failure

    def offer(self, records: Records) -> None:
        """Queue fetched records."""
        for part in chunked(records, self._batch_records):
            super().offer(part)
        size = record_bytes(records)
        self._queued_bytes += size
        self._hold(size)

    def note_lag(self, lag: int, asked_at: float) -> None:
        """The partition had so many records left at `asked_at` (epoch s)."""
        self.visits.note_lag(lag, asked_at)
        self._moved.set()

    async def finish(self, deadline: float) -> None:
        """Finish what was taken in, drop the queue, and end within `deadline` seconds."""
        self._close()
        try:
            async with asyncio.timeout(deadline):
                await asyncio.wait([self._task])
                await self.visits.save()
                while (self._offsets.unfinished or self.visits.pending) and self.failure is None:
                    self._moved.clear()
                    await self._moved.wait()
                await self.visits.save()
        except (TimeoutError, VisitsTakenOverError):
            pass  # unfinished records are not committed: the next owner reads them
        await self.abandon()

    async def abandon(self) -> None:
        """End at once, without finishing anything."""
        self.is_abandoned = True
        await super().abandon()
        await cancel(self._publishing.values())
        await self._cycle.leave(self)
        self.held_back.clear()
        self.remembered.close()
        self.visits.close()
        self._hold(-self._bytes)

    def finish_detections(self, detections: Sequence[DecidedDetection]) -> None:
        """What these detections and moments of visits fired is acknowledged."""
        if not self.is_abandoned:
            for each in detections:
                if each.event is not None:
                    self.visits.finish(each.event)
                    self._moved.set()
        self.finish_records([each.record for each in detections if each.event is None])

    def finish_records(self, records: Records) -> None:
        """A detection of each of these records is finished, or its dead letter is published."""
        if self.is_abandoned:
            return
        finished = list(filter(self._is_finished, records)) if self._parts else records
        self._offsets.finish_all([record.offset for record in finished])
        self._hold(-record_bytes(finished))
        if self._queue or self._closing:  # which may wait for it
            self._moved.set()
        self.on_progress()

    def _is_finished(self, record: ConsumerRecord[bytes, bytes]) -> bool:
        """Whether this was the record's last detection."""
        left = self._parts.pop(record.offset, 1) - 1
        if left:
            self._parts[record.offset] = left
        return not left

    async def _run(self) -> None:
        self._put([], await self.visits.load())
        await super()._run()

    async def wait_for_records(self) -> None:
        """Return when more may be taken in; meanwhile visits end and are saved."""
        now = asyncio.get_running_loop().time
        while not self._closing:
            if self.visits.is_due:
                self._put([], await self.visits.tick())
            is_idle = not self._queue or self._ahead() >= self._most_ahead
            unsaved, save_at = self.visits.unsaved_from, self.visits.save_at
            if unsaved is not None and (
                self._offsets.end - unsaved >= _MOST_UNSAVED or (is_idle and save_at <= now())
            ):
                await self.visits.save()
                self.on_progress()
            elif is_idle:
                self._moved.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(None if unsaved is None else save_at):
                        await self._moved.wait()
            else:
                await asyncio.sleep(0)  # other tasks have their turn
                break

    def _ahead(self) -> int:
        """How far the intake is ahead of the first unfinished record: what a crash repeats."""
        return self._offsets.end - self._offsets.done

    async def handle(self, records: Records) -> None:
        """Take the records in."""
        decided, letters, moments = await self._intake.take_in(records, self)
        opened = [each.record for each in decided]
        opened += [letter.record for letter in letters]
        unfinished = {record.offset: record for record in opened}
        if len(unfinished) < len(opened):
            parts = Counter(record.offset for record in opened)
            self._parts |= {offset: count for offset, count in parts.items() if count > 1}
        self._offsets.begin_all(sorted(unfinished), records[-1].offset + 1)
        # (The records of a queue count as equally large.)
        size = self._queued_bytes * len(records) // self._pending
        self._queued_bytes -= size
        self._hold(record_bytes([*unfinished.values()]) - size)
        self._put(decided, moments)
        if letters:
            self._letters.extend(letters)
            self._publish("letters", self._run_letters)

    def _put(self, decided: list[DecidedDetection], moments: list[DecidedDetection]) -> None:
        """Queue what may fire in the order of the records, however many were taken in at once."""
        for each in moments:
            each.partition = self
        self._cycle.put(sorted([*decided, *moments], key=_order) if moments else decided)
        if self.visits.messages:
            self._publish("presence", self._run_presence)
        self.on_progress()

    def _publish(self, what: str, run: Callable[[], Coroutine[None, None, None]]) -> None:
        if what not in self._publishing:
            task = asyncio.create_task(run(), name=f"{what} of {self.partition}")
            task.add_done_callback(self._note_end)
            self._publishing[what] = task

    async def _run_presence(self) -> None:
        with self._cycle.step("publish"):
            await self.visits.publish()
        del self._publishing["presence"]

    async def _run_letters(self) -> None:
        """Publish dead letters, a bounded number at once."""
        while self._letters:
            letters = self._letters[:_LETTERS_AT_ONCE]
            del self._letters[:_LETTERS_AT_ONCE]
            with self._cycle.step("publish"):
                await self._cycle.letters.publish(letters)
            self.finish_records([letter.record for letter in letters])
        del self._publishing["letters"]

    def _hold(self, size: int) -> None:
        self._bytes += size
        self._in_flight.hold(size)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            failure = task.exception()  # retrieved, so that asyncio does not log it
            self._failure = self._failure or failure
        self._moved.set()
        self.on_progress()
