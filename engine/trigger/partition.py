"""One partition of the role `trigger`: its queue, its lanes, and its progress."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from aiokafka import TopicPartition

from engine.kafka.offsets import OffsetTracker
from engine.kafka.partition_worker import Records
from engine.kafka.publisher import Publisher
from engine.process.cancelling import cancel
from engine.trigger.claim_memory import ClaimMemory
from engine.trigger.company_turns import CompanyTurns
from engine.trigger.counts import DecisionCounts
from engine.trigger.fair_turns import FairTurns
from engine.trigger.grants import Candidate, TakenIn
from engine.trigger.in_flight import InFlightBytes, ReadAhead, RecordParts, value_bytes
from engine.trigger.lanes import DEAD_LETTERS, CompanyLane, DeadLetterLane, Lane
from engine.trigger.pipeline import TriggerPipeline

_TAKEN_AT_ONCE = 1000  # records at most; then other tasks have their turn


@dataclass(frozen=True, kw_only=True)
class TriggerRole:
    """The objects that the partitions of one process share."""

    pipeline: TriggerPipeline
    claim_memory: ClaimMemory
    turns: FairTurns
    in_flight: InFlightBytes
    batch_records: int

    @cached_property
    def company_turns(self) -> CompanyTurns:
        """The turns of companies, which publish with this role's publisher."""
        return CompanyTurns(self.turns, self.pipeline.take_turn)

    def publishing_with(self, publisher: Publisher) -> "TriggerRole":
        """The same role with another publisher; everything but the companies' turns is shared."""
        step = self.pipeline.publish.publishing_with(publisher)
        return replace(self, pipeline=replace(self.pipeline, publish=step))

    def worker_for(
        self, partition: TopicPartition, on_progress: Callable[[], None]
    ) -> "TriggerPartition":
        """The worker for one assignment of one partition."""
        return TriggerPartition(partition, shared=self, on_progress=on_progress)


class TriggerPartition:
    """Takes in records in order; each company's lane finishes its records in order.

    Implements the consumer's PartitionWorker. Its queues and memory end with the assignment.
    """

    def __init__(
        self, partition: TopicPartition, *, shared: TriggerRole, on_progress: Callable[[], None]
    ) -> None:
        self.partition = partition
        self._shared = shared
        self._on_progress = on_progress
        decoder = shared.pipeline.decode.decoders[partition.topic]
        self._taken_at_once = min(_TAKEN_AT_ONCE, decoder.records_at_once)
        self._remembered = shared.claim_memory.for_assignment()
        self._queue: deque[Records] = deque()
        self._queued = 0
        self._bytes = 0
        self._offsets = OffsetTracker()
        self._parts = RecordParts()
        self._company_lanes: dict[int, CompanyLane] = {}
        self._dead_letters = DeadLetterLane(
            turns=shared.turns,
            turn_bytes=shared.in_flight.turn_bytes,
            on_finished=self._finish,
            publish=shared.pipeline.publish_dead_letters,
        )
        self._running: dict[int, asyncio.Task[None]] = {}
        self._failure: BaseException | None = None
        self._arrived = asyncio.Event()
        self._read_ahead = ReadAhead(2 * shared.batch_records)
        self._moved = asyncio.Event()
        self._closing = False
        self._abandoned = False
        self._task = asyncio.create_task(self._run(), name=f"partition {partition}")
        self._task.add_done_callback(self._note_end)

    @property
    def pending(self) -> int:
        """Records offered and not finished."""
        return self._queued + self._offsets.unfinished

    @property
    def done_offset(self) -> int | None:
        """The offset before which all records are finished."""
        return self._offsets.done

    @property
    def failure(self) -> BaseException | None:
        """The error that stopped the partition, or None."""
        return self._failure

    def offer(self, records: Records) -> None:
        """Queue fetched records."""
        self._queue.append(records)
        self._queued += len(records)
        self._hold(value_bytes(records))
        self._arrived.set()

    def note_committed(self, offset: int) -> None:
        """The group has committed up to `offset`.

        After the first call the partition takes in no more than two batches beyond what is
        committed, so that a crash repeats no more than that.
        """
        self._read_ahead.note_committed(offset)
        self._moved.set()

    async def finish(self, deadline: float) -> None:
        """Finish what was taken in, drop the queue, and end within `deadline` seconds."""
        self._closing = True
        self._arrived.set()
        self._moved.set()
        try:
            async with asyncio.timeout(deadline):
                await asyncio.wait([self._task])
                while self._running:
                    await asyncio.wait(self._running.values())
        except TimeoutError:
            pass  # unfinished records are not committed: the next owner reads them
        await self.abandon()

    async def abandon(self) -> None:
        """End at once, without finishing anything."""
        self._closing = self._abandoned = True
        await cancel([self._task, *self._running.values()])
        self._queue.clear()
        for lane in self._company_lanes.values():
            lane.abandon()
        self._company_lanes.clear()
        self._remembered.close()
        self._hold(-self._bytes)

    async def _run(self) -> None:
        while not self._closing:
            await self._arrived.wait()
            while self._queue and not self._closing:
                records = self._queue.popleft()
                for start in range(0, len(records), self._taken_at_once):
                    piece = records[start : start + self._taken_at_once]
                    await self._until_room(len(piece))
                    if not self._closing:
                        await self._take_in(piece)
                        await asyncio.sleep(0)
            if not self._closing:
                self._arrived.clear()

    async def _until_room(self, count: int) -> None:
        """Wait until so many more records may be taken in ahead of the committed ones."""
        while not self._closing and not self._read_ahead.has_room(count, self.done_offset):
            self._moved.clear()
            await self._moved.wait()

    async def _take_in(self, records: Records) -> None:
        """Decide the records that memory can decide; put the others into the lanes."""
        metrics, sums = self._shared.pipeline.metrics, self._shared.pipeline.sums
        taken = await self._shared.pipeline.take_in(records, self._remembered)
        self._begin(records, taken)
        counts = DecisionCounts(taken.refused)
        counts.add_to(metrics)
        if sums is not None:
            sums.note_decided(counts)
        metrics.batch_size.observe(len(records))
        self._on_progress()

    def _begin(self, records: Records, taken: TakenIn) -> None:
        """Put unfinished records into the lanes; the other records are finished now."""
        unfinished = [candidate.detection.record for candidate in taken.candidates]
        unfinished += [letter.record for letter in taken.dead_letters]
        offsets = {record.offset for record in unfinished}
        if len(offsets) < len(unfinished):
            unfinished = self._parts.note(unfinished)
        self._open(records, offsets)
        self._read_ahead.take(records[-1].offset + 1, len(records))
        self._queued -= len(records)
        self._hold(value_bytes(unfinished) - value_bytes(records))
        filled: dict[int, Lane] = {}
        for candidate in taken.candidates:
            company = candidate.beacon.company_reference.id
            filled[company] = self._put(company, candidate)
        for letter in taken.dead_letters:
            self._dead_letters.put(letter)
            filled[DEAD_LETTERS] = self._dead_letters
        for lane in filled.values():
            self._start(lane)

    def _open(self, records: Records, unfinished: set[int]) -> None:
        """Note which of the records are not finished; the others are."""
        edges = {records[0].offset, records[-1].offset}
        self._offsets.begin_all(sorted(edges | unfinished))
        for offset in edges - unfinished:
            self._offsets.finish(offset)

    def _put(self, company: int, candidate: Candidate) -> CompanyLane:
        lane = self._company_lanes.get(company)
        if lane is None:
            lane = self._company_lanes[company] = CompanyLane(
                company,
                on_finished=self._finish,
                remembered=self._remembered,
                take_turn=self._shared.company_turns.take,
            )
        lane.put(candidate)
        return lane

    def _start(self, lane: Lane) -> None:
        if lane.number in self._running:
            return
        task = asyncio.create_task(lane.run(), name=f"lane {lane.number} of {self.partition}")
        self._running[lane.number] = task
        task.add_done_callback(lambda task: self._lane_ended(lane, task))

    def _lane_ended(self, lane: Lane, task: asyncio.Task[None]) -> None:
        del self._running[lane.number]
        self._note_end(task)
        if self._abandoned or task.cancelled() or self._failure is not None:
            return
        if not lane.is_empty:
            self._start(lane)  # it was filled after it had found itself empty
        else:
            self._company_lanes.pop(lane.number, None)

    def _finish(self, records: Records) -> None:
        """Note these records as finished: their messages are acknowledged."""
        records = self._parts.finish(records)
        for record in records:
            self._offsets.finish(record.offset)
        self._hold(-value_bytes(records))
        self._moved.set()
        self._on_progress()

    def _hold(self, size: int) -> None:
        self._bytes += size
        self._shared.in_flight.hold(size)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            failure = task.exception()  # retrieved, so that asyncio does not log it
            self._failure = self._failure or failure
        self._on_progress()
