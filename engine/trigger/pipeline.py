"""The role `trigger`: the way of a detection, from the record to the notification.

decode -> resolve the beacon -> decide, and from there in the lane of its company: claim -> compose
-> publish (engine/trigger/company_lane.py). Each step takes many detections at once; nothing awaits
once per detection. A record is finished when what it led to is acknowledged, and the offset to
commit is that behind which everything is finished.
"""

import asyncio
import copy
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from aiokafka import TopicPartition

from engine.kafka.dead_letters import DeadLetterLimit
from engine.kafka.detections import BeaconKey, DecodedBatch, DecodedDetection, decode_batch
from engine.kafka.offsets import Offsets
from engine.kafka.partition_worker import Records
from engine.kafka.publisher import Publisher
from engine.kafka.topics import Topics
from engine.process.cancelling import cancel
from engine.process.metrics import Metrics
from engine.process.settings import Settings
from engine.redis.claim_settlement import ClaimSettler
from engine.redis.claims import Claims
from engine.redis.devices import DeviceLookup
from engine.trigger.batch_outcome import Outcome
from engine.trigger.beacon_cache import IndexedBeacon
from engine.trigger.beacon_index import BeaconIndex
from engine.trigger.company_lane import DEAD_LETTERS, ROLE, Clock, Lane, Record, Waiting
from engine.trigger.compose import Composer
from engine.trigger.fair_turns import Turns
from engine.trigger.held_claims import HeldMemory
from engine.trigger.in_flight import Ahead, InFlightBytes, size_of
from rules.decision import Decision, decide

__all__ = ["ROLE", "PartitionTrigger", "Trigger"]

_STEPS = ("decode", "resolve", "decide", "claim", "publish")
_TAKEN_AT_ONCE = 1000  # records, between which the event loop has its turn


class Trigger:
    """What the partitions of one process share. `clock` gives epoch seconds."""

    def __init__(
        self,
        *,
        settings: Settings,
        topics: Topics,
        index: BeaconIndex,
        claims: Claims,
        settler: ClaimSettler,
        devices: DeviceLookup,
        publisher: Publisher,
        metrics: Metrics,
        clock: Clock = time.time,
    ) -> None:
        self.settings = settings
        self.topics = topics
        self.index = index
        self.claims = claims
        self.settler = settler
        self.devices = devices
        self.publisher = publisher
        self.metrics = metrics
        self.clock = clock
        self.in_flight = InFlightBytes(settings.in_flight_bytes)
        self.turns = Turns(self.in_flight.turns)
        self.turn_bytes = self.in_flight.turn_bytes
        self.max_age = settings.max_detection_age
        self.held = HeldMemory(settings.held_claims)
        self.limit = DeadLetterLimit(share=settings.dead_letter_share, run=settings.dead_letter_run)
        self.composer = Composer(topics=topics, lifetime=settings.notification_lifetime)
        self._seconds = {step: metrics.batch_seconds.labels(ROLE, step) for step in _STEPS}

    def publishing_with(self, publisher: Publisher) -> "Trigger":
        """The same, which publishes with `publisher`; all else is shared."""
        other = copy.copy(self)
        other.publisher = publisher
        return other

    def for_partition(
        self, partition: TopicPartition, on_progress: Callable[[], None]
    ) -> "PartitionTrigger":
        """The worker for one assignment of one partition."""
        return PartitionTrigger(partition, shared=self, on_progress=on_progress)

    def step_seconds(self, name: str) -> Callable[[float], None]:
        """Where the seconds of a step are told."""
        return self._seconds[name].observe


class PartitionTrigger:
    """One partition: records are taken in in order, and finish in order in each company's lane.

    Implements the consumer's Worker. What it holds and remembers dies with the assignment.
    """

    def __init__(
        self, partition: TopicPartition, *, shared: Trigger, on_progress: Callable[[], None]
    ) -> None:
        self.partition = partition
        self._shared = shared
        self._on_progress = on_progress
        self._held = shared.held.for_assignment()
        self._queue: deque[Records] = deque()
        self._queued = 0
        self._bytes = 0
        self._offsets = Offsets()
        self._lanes: dict[int, Lane] = {}
        self._running: dict[int, asyncio.Task[None]] = {}
        self._failure: BaseException | None = None
        self._arrived = asyncio.Event()
        self._ahead = Ahead(2 * shared.settings.batch_records)
        self._moved = asyncio.Event()
        self._closing = False
        self._task = asyncio.create_task(self._run(), name=f"partition {partition}")
        self._task.add_done_callback(self._note_end)

    @property
    def pending(self) -> int:
        """Records offered and not finished."""
        return self._queued + self._offsets.unfinished

    @property
    def done_offset(self) -> int | None:
        """Behind what is finished without a gap."""
        return self._offsets.done

    @property
    def failure(self) -> BaseException | None:
        """What stopped it, once something has."""
        return self._failure

    def offer(self, records: Records) -> None:
        """Queue fetched records."""
        self._queue.append(records)
        self._queued += len(records)
        self._hold(size_of(records))
        self._arrived.set()

    def note_committed(self, offset: int) -> None:
        """The group has committed up to `offset`. Once told so, the partition takes in no more
        than two batches behind what is committed, so that a crash repeats no more."""
        self._ahead.note_committed(offset)
        self._moved.set()

    async def finish(self, deadline: float) -> None:
        """Finish what was taken in, drop what waits, and end within `deadline` seconds."""
        self._closing = True
        self._arrived.set()
        self._moved.set()
        try:
            async with asyncio.timeout(deadline):
                await asyncio.wait([self._task])
                while self._running:
                    await asyncio.wait(self._running.values())
        except TimeoutError:
            pass  # it is not done, so it is not committed, and the next owner reads it
        await self.abandon()

    async def abandon(self) -> None:
        """End at once, whatever is in hand."""
        self._closing = True
        await cancel([self._task, *self._running.values()])
        self._queue.clear()
        self._lanes.clear()
        self._held.close()
        self._hold(-self._bytes)

    async def _run(self) -> None:
        while not self._closing:
            await self._arrived.wait()
            while self._queue and not self._closing:
                records = self._queue.popleft()
                for start in range(0, len(records), _TAKEN_AT_ONCE):
                    piece = records[start : start + _TAKEN_AT_ONCE]
                    await self._until_room(len(piece))
                    if not self._closing:
                        await self._take_in(piece)
                        await asyncio.sleep(0)
            if not self._closing:
                self._arrived.clear()

    async def _until_room(self, count: int) -> None:
        """Until so many records more may be taken in, ahead of what is done or committed."""
        while not self._closing and not self._ahead.has_room(count, self.done_offset):
            self._moved.clear()
            await self._moved.wait()

    async def _take_in(self, records: Records) -> None:
        """Decide what can be decided from memory; the rest goes into the lanes."""
        shared = self._shared
        with self._step("decode"):
            batch = decode_batch(records, shared.settings.path_loss_exponent)
        shared.limit.note(records, batch.dead_positions)
        version = shared.index.cache.version
        with self._step("resolve"):
            beacons = await shared.index.resolve(
                {h.key for h in batch.detections}, len(batch.detections)
            )
        with self._step("decide"):
            firing, refused = self._sort(batch.detections, beacons, version)
        self._begin(records, batch, firing)
        refused.record(shared.metrics)
        shared.metrics.batch_size.observe(len(records))
        self._on_progress()

    def _sort(
        self,
        heard: list[DecodedDetection],
        beacons: Mapping[BeaconKey, IndexedBeacon | None],
        version: int,
    ) -> tuple[list[tuple[Waiting, int]], Outcome]:
        """Those that may fire, with their company, and what became of the others."""
        now = self._shared.clock()
        self._held.expire(now)
        max_age = self._shared.max_age
        held_by = self._held.of
        firing = []
        refused: list[Decision] = []
        for detection in heard:
            beacon = beacons[detection.key]
            decision = decide(
                None if beacon is None else beacon.target,
                detection.zone,
                detection.detected_at,
                now,
                max_age,
                held_by(detection.message.device.udid),
            )
            if decision.granted and beacon is not None:
                waiting = Waiting(detection, beacon, version)
                firing.append((waiting, beacon.company_reference.id))
            else:
                refused.append(decision)
        return firing, Outcome(refused)

    def _begin(
        self, records: Records, batch: DecodedBatch, firing: list[tuple[Waiting, int]]
    ) -> None:
        """Hand what is not finished to the lanes; the other records are finished now."""
        opened = [waiting.heard.record for waiting, _ in firing] + [
            each.record for each in batch.dead_letters
        ]
        self._open(records, {record.offset for record in opened})
        self._ahead.take(records[-1].offset + 1, len(records))
        self._queued -= len(records)
        self._hold(size_of(opened) - size_of(records))
        touched = set()
        for waiting, company in firing:
            touched.add(company)
            self._lane(company).add(waiting)
        for letter in batch.dead_letters:
            touched.add(DEAD_LETTERS)
            self._lane(DEAD_LETTERS).add_letter(letter)
        for company in touched:
            self._start(company)

    def _open(self, records: Records, still_open: set[int]) -> None:
        """Note which of the records are not finished; all between them are."""
        edges = {records[0].offset, records[-1].offset}
        for offset in sorted(edges | still_open):
            self._offsets.begin(offset)
        for offset in edges - still_open:
            self._offsets.finish(offset)

    def _lane(self, company: int) -> Lane:
        lane = self._lanes.get(company)
        if lane is None:
            lane = self._lanes[company] = Lane(
                company, shared=self._shared, held=self._held, on_finished=self._finished
            )
        return lane

    def _start(self, company: int) -> None:
        if company in self._running:
            return
        lane = self._lanes[company]
        task = asyncio.create_task(lane.run(), name=f"lane {company} of {self.partition}")
        self._running[company] = task
        task.add_done_callback(lambda task: self._lane_ended(company, task))

    def _lane_ended(self, company: int, task: asyncio.Task[None]) -> None:
        del self._running[company]
        self._note_end(task)
        lane = self._lanes.get(company)
        if lane is None or task.cancelled() or self._failure is not None:
            return
        if lane.is_empty:
            del self._lanes[company]
        else:
            self._start(company)  # filled after its last look

    def _finished(self, records: list[Record]) -> None:
        """These records are done with: what they led to is acknowledged."""
        for record in records:
            self._offsets.finish(record.offset)
        self._hold(-size_of(records))
        self._moved.set()
        self._on_progress()

    def _hold(self, size: int) -> None:
        self._bytes += size
        self._shared.in_flight.hold(size)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and self._failure is None:
            self._failure = task.exception()
        self._on_progress()

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self._shared.step_seconds(name)(time.perf_counter() - begin)
