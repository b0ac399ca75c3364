"""The consumer of one role: fetches records, passes them to workers, commits offsets.

A revoked partition finishes the records in flight, then commits. So does a lost one (the group gave
this member up), of which aiokafka does not tell: the group refuses its commit, and what it still
publishes has the ids of the next owner's messages.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import (
    CommitFailedError,
    IllegalStateError,
    KafkaError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)

from engine.kafka.client import (
    FETCH_MS,
    REQUEST_SECONDS,
    KafkaCluster,
    connection_options,
    stop_consumer,
)
from engine.kafka.offsets import (
    POSITION_SECONDS,
    POSITIONING,
    LoadPositions,
    Position,
    Positions,
    committed_positions,
)
from engine.kafka.workers import PartitionRestartError, PartitionWorker, Records
from engine.process.failures import Backoff, describe, retry
from engine.process.lifecycle import cancel
from engine.process.metrics import Metrics, StepTimer
from engine.process.settings import Settings

log = structlog.get_logger(__name__)

_POLL_SECONDS, _SHORT_POLL_SECONDS = 0.1, 0.01
_START_SECONDS = 60.0
_LAG_SECONDS = 1.0
# The pause after a fetch of few records: a cycle costs nearly the same for one record as for ten,
# and without a pause a process with a thousand records a second is busy with cycles of one. The
# fewer records a fetch has, the more time is left, and the sooner the next one may come.
_PACE_SECONDS, _PACE_A_RECORD = 0.01, 0.002
_FEW_RECORDS = 250
_RESTART_SECONDS = 2.0
_COMMITTING = "committing"
_COMMIT_RETRY_SECONDS = 0.5
_COMMIT_SECONDS = 10.0
# The parts of the drain timeout in which workers finish, that is committed, and the group is left.
# The rest is for closing what the process has open.
_DRAIN_SHARE, _COMMIT_SHARE, _LEAVE_SHARE = 0.6, 0.7, 0.8
_LEAST_LEAVE_SECONDS = 0.5

# Makes a worker: the partition, its position, and the callback for progress.
WorkerFactory = Callable[[TopicPartition, Position, Callable[[], None]], PartitionWorker]


def role_group(settings: Settings, role: str) -> str:
    """The consumer group of a role."""
    return f"{settings.group_prefix}{role}"


def group_consumer(settings: Settings, role: str) -> AIOKafkaConsumer:
    """A member of the role's group, which never commits by itself.

    It gets a share of each topic: partitions are dealt round robin, aiokafka's default.
    """
    session_ms = int(settings.kafka_session_timeout * 1000)
    return AIOKafkaConsumer(
        **connection_options(settings),
        group_id=role_group(settings, role),
        enable_auto_commit=False,
        auto_offset_reset="none",  # every partition gets a position; no jump goes unnoticed
        isolation_level="read_committed",
        fetch_max_wait_ms=FETCH_MS,
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=session_ms // 5,
        # A revoked partition finishes its batch first; the group waits for that.
        rebalance_timeout_ms=int((settings.drain_timeout + REQUEST_SECONDS) * 1000),
    )


@dataclass(eq=False)
class AssignedPartition:
    """One assignment of one partition: its worker, and its committed position.

    `lag` is the number of records that are left, None while it is not known, and `newest` the time
    (epoch s) of the last fetched record.
    """

    worker: PartitionWorker
    committed: Position
    lag: int | None = None
    newest: float = 0.0


@dataclass(kw_only=True, eq=False)
class PartitionedConsumer(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped
    """Consumes `topics` as one member of the role's group until it is stopped.

    `worker_for` makes the worker of one assignment of one partition; until a partition has its
    position and its worker, it is paused. `positions`, if given, loads the positions at which
    partitions begin, whatever the group has committed; other partitions begin at their first
    record. Nothing is fetched while `has_room()` is false; it is called again when a worker makes
    progress.

    Offsets are committed as soon as their records are done, so that a crash repeats little: one
    request at a time commits all partitions, and what becomes done meanwhile is in the next one.
    """

    settings: Settings
    topics: Collection[str]
    role: str
    worker_for: WorkerFactory
    metrics: Metrics
    batch_records: int
    in_flight_records: int
    cluster: KafkaCluster | None = None
    positions: LoadPositions | None = None
    has_room: Callable[[], bool] = lambda: True

    def __post_init__(self) -> None:
        self.partitions: dict[TopicPartition, AssignedPartition] = {}  # that have a worker
        self.assigned = False  # the group has given this member its share, which may be empty
        self._consumer = group_consumer(self.settings, self.role)
        self._cluster = self.cluster or KafkaCluster(self.settings)
        self._errors = self.metrics.kafka_errors
        self._step = StepTimer(self.metrics, self.role)
        group = role_group(self.settings, self.role)
        committed = partial(committed_positions, self._cluster, group, self._errors)
        self._load_positions = self.positions or committed
        # With another store of positions the group's commits do not decide what a crash repeats.
        self._waits_for_commits = self.positions is None
        self._may_have_room = asyncio.Event()
        self._may_commit = asyncio.Event()
        self._unplaced: set[TopicPartition] = set()
        self._positioning: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None

    def seconds_behind(self, now: float) -> float | None:
        """The age of the newest fetched record of the partition that is the farthest behind.

        0 if every record has been handled; None while the share, a position or an end is not known.
        By the records' own timestamps; `now` in epoch seconds.
        """
        if not self.assigned or set(self._consumer.assignment()) - set(self.partitions):
            return None
        behind = 0.0
        for each in self.partitions.values():
            if each.lag is None or (each.lag and not each.newest):
                return None
            if each.lag:
                behind = max(behind, now - each.newest)
        return behind

    async def run(self, stop: asyncio.Event) -> None:
        """Consume until `stop` is set or a worker fails; then drain, commit, leave the group.

        Raises the errors of workers, and KafkaError if the brokers refuse permanently.
        """
        self._consumer.subscribe(list(self.topics), listener=self)
        work: dict[str, Coroutine[Any, Any, Any]] = {
            "stop": stop.wait(),
            "fetching": self._start_and_fetch(),
            "commits": self._run_commits(),
            "lag": self._measure_lag(),
        }
        tasks = [asyncio.create_task(each, name=f"{self.role} {n}") for n, each in work.items()]
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        finally:
            await cancel(tasks)
            await self._leave()
        self._raise_failures()

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """The group has given this member these partitions."""
        partitions = list(assigned)
        if partitions:
            # In the background, because the group waits for its listener, and the servers that
            # have the positions may be down for long.
            self._begin(partitions)
        self.assigned = True
        names = sorted(f"{each.topic}/{each.partition}" for each in partitions)
        log.info("partitions assigned", role=self.role, partitions=names)

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """The group revokes these partitions, or has revoked them already."""
        # aiokafka revokes all before it assigns: partitions without a position are assigned again.
        await cancel(self._positioning)
        self._positioning.clear()
        self._unplaced.clear()
        await self._end(revoked)

    async def _start_and_fetch(self) -> None:
        async with asyncio.timeout(_START_SECONDS):
            await self._consumer.start()
        while True:
            self._raise_failures()
            with_room = [each for each in self.partitions if self._may_fetch(each)]
            if self._is_full() or (self.partitions and not with_room):
                self._may_have_room.clear()
                await self._may_have_room.wait()
                continue
            fetched = await self._fetch(with_room)
            # There is no await between aiokafka's buffer and the queue, so records that were
            # fetched in one assignment can never reach the worker of the next.
            for partition, records in fetched.items():
                if partition in self.partitions:
                    assigned = self.partitions[partition]
                    assigned.newest = records[-1].timestamp / 1000
                    assigned.worker.offer(records)
            # At least one turn of the loop: a full buffer makes getmany return without a pause.
            count = sum(map(len, fetched.values()))
            is_few = count < min(_FEW_RECORDS, self.batch_records)
            await asyncio.sleep(min(_PACE_SECONDS, count * _PACE_A_RECORD) if is_few else 0.0)

    async def _fetch(self, partitions: list[TopicPartition]) -> Mapping[TopicPartition, Records]:
        # Of others, aiokafka keeps what it has fetched. They may soon have room: then the poll is
        # short.
        poll = _POLL_SECONDS if len(partitions) == len(self.partitions) else _SHORT_POLL_SECONDS
        fetched: Mapping[TopicPartition, Records] = {}
        try:
            fetched = await self._consumer.getmany(
                *partitions, timeout_ms=int(poll * 1000), max_records=self.batch_records
            )
        except NoOffsetForPartitionError:
            pass  # the partition waits for its position
        except OffsetOutOfRangeError as error:
            self._begin_again(error.args[0])  # the records were deleted
        return fetched

    def _is_full(self) -> bool:
        """Backpressure: whether nothing may be fetched now."""
        in_flight = sum(map(self._in_flight, self.partitions.values()))
        return in_flight >= self.in_flight_records or not self.has_room()

    def _may_fetch(self, partition: TopicPartition) -> bool:
        """Whether a partition has room for another batch, so that it never holds more than two."""
        in_flight = self._in_flight(self.partitions[partition])
        return partition not in self._unplaced and in_flight <= self.batch_records

    def _in_flight(self, assigned: AssignedPartition) -> int:
        """The records of a partition that a crash would repeat.

        What is done and not committed counts too, so a slow coordinator does not add to them.
        """
        in_flight = assigned.worker.pending
        if self._waits_for_commits:
            in_flight += assigned.worker.position.offset - assigned.committed.offset
        return in_flight

    async def _measure_lag(self) -> None:
        """Measure each second, independently of fetching, which stands still while a partition is
        full."""
        while True:
            await asyncio.sleep(_LAG_SECONDS)
            measured, asked_at = dict(self.partitions), time.time()
            ends: Mapping[TopicPartition, int] = {}
            # Without a leader of some partition there is no answer about any: the ends are those of
            # the last fetches.
            with suppress(KafkaError, TimeoutError):
                ends = await self._consumer.end_offsets(list(measured)) if measured else {}
            for partition, assigned in measured.items():
                # Revoked meanwhile, or without a position: the next round measures it.
                with suppress(IllegalStateError, TimeoutError):
                    async with asyncio.timeout(_LAG_SECONDS):
                        fetched = await self._consumer.position(partition)
                    if partition not in self.partitions:
                        continue
                    end = ends.get(partition) or self._consumer.highwater(partition) or 0
                    assigned.lag = max(0, end - fetched + assigned.worker.pending)
                    labels = (self.role, partition.topic, str(partition.partition))
                    self.metrics.lag.labels(*labels).set(assigned.lag)
                    if partition in ends:
                        assigned.worker.note_lag(assigned.lag, asked_at)

    def _begin_again(self, partitions: Iterable[TopicPartition], pause: float = 0.0) -> None:
        """Finish the batches in flight and, after `pause` seconds, find new positions.

        (If another member owns a partition by now, the group revokes it meanwhile.)
        """
        placed = list((self.partitions.keys() - self._unplaced).intersection(partitions))
        if placed:
            self._begin(placed, pause)

    def _raise_failures(self) -> None:
        """Raise the first error of a worker or of positioning.

        A partition that only needs a restart is restarted.
        """
        for task in [task for task in self._positioning if task.done()]:
            self._positioning.discard(task)
            if not task.cancelled():
                task.result()
        if self._failure is not None:
            raise self._failure
        for partition, assigned in self.partitions.items():
            failure = assigned.worker.failure
            if failure is not None and not isinstance(failure, PartitionRestartError):
                raise failure
            if failure is not None and partition not in self._unplaced:
                about = self._about(partition)
                log.warning("beginning a partition again", error=describe(failure), **about)
                self._errors.inc()
                self._begin_again([partition], pause=_RESTART_SECONDS)

    async def _run_commits(self) -> None:
        """Commit whenever there is an offset to commit, until cancelled."""
        backoff = Backoff(_COMMIT_RETRY_SECONDS, _COMMIT_RETRY_SECONDS)
        while True:
            await self._may_commit.wait()
            self._may_commit.clear()
            if not await self._commit(dict(self.partitions)):
                self._may_commit.set()
                await backoff.pause()

    def _note_progress(self) -> None:
        self._may_commit.set()
        self._may_have_room.set()

    async def _commit(
        self,
        partitions: Mapping[TopicPartition, AssignedPartition],
        deadline: float = _COMMIT_SECONDS,
    ) -> bool:
        """Commit the done offsets within `deadline` seconds; False if that failed.

        A commit that the group refuses is not retried for long: the partitions are about to be
        revoked, and the next owner begins at the last commit.
        """
        commits = {
            partition: position
            for partition, each in partitions.items()
            if (position := each.worker.position) != each.committed
        }
        if not commits:
            return True
        try:
            with self._step("commit"):
                async with asyncio.timeout(deadline):
                    offsets = {each: at.to_commit() for each, at in commits.items()}
                    await self._consumer.commit(offsets)
        except (CommitFailedError, IllegalStateError):
            self._errors.inc()
            return False
        except (KafkaError, TimeoutError) as error:
            if not self._errors.may_recover(error):
                raise
            self._errors.failed(error, _COMMITTING)
            return False
        self._errors.answered(_COMMITTING)
        for partition, position in commits.items():
            partitions[partition].committed = position
        self._may_have_room.set()
        return True

    def _begin(self, partitions: Collection[TopicPartition], pause: float = 0.0) -> None:
        """Pause the partitions until they have their positions."""
        self._consumer.pause(*partitions)
        self._unplaced.update(partitions)
        work = self._end_and_begin(partitions, pause)
        task = asyncio.create_task(work, name=f"{self.role} positions")
        self._positioning.add(task)
        task.add_done_callback(lambda _: self._note_progress())

    async def _end_and_begin(self, partitions: Collection[TopicPartition], pause: float) -> None:
        await self._end(partitions)
        await asyncio.sleep(pause)
        for partition, position in (await self._seek(partitions)).items():
            worker = self.worker_for(partition, position, self._note_progress)
            self.partitions[partition] = AssignedPartition(worker, position)
        self._unplaced.difference_update(partitions)
        self._consumer.resume(*partitions)

    async def _end(self, partitions: Iterable[TopicPartition]) -> None:
        ended = {each: self.partitions.pop(each) for each in partitions if each in self.partitions}
        clock = asyncio.get_running_loop().time
        until = clock() + _COMMIT_SHARE * self.settings.drain_timeout
        deadline = _DRAIN_SHARE * self.settings.drain_timeout
        try:
            await asyncio.gather(*(each.worker.finish(deadline) for each in ended.values()))
            await self._commit(ended, until - clock())
        finally:
            await asyncio.gather(*(each.worker.abandon() for each in ended.values()))
            for (topic, number), assigned in ended.items():
                failure = assigned.worker.failure
                if not isinstance(failure, PartitionRestartError):
                    self._failure = self._failure or failure
                with suppress(KeyError):  # never measured
                    self.metrics.lag.remove(self.role, topic, str(number))

    async def _seek(self, partitions: Collection[TopicPartition]) -> Positions:
        """Move each partition to its position, and return the positions. Waits for brokers.

        If a topic is another one than the position's, it is read from its beginning. Deleted
        records are skipped. Both are logged, and skipped records are counted.
        """

        async def ask_brokers() -> tuple[Mapping[str, str], Any, Any]:
            ids = await self._cluster.topic_ids({partition.topic for partition in partitions})
            begins = await self._consumer.beginning_offsets(partitions)
            return ids, begins, await self._consumer.end_offsets(partitions)

        known = await self._load_positions(partitions)
        ids, begins, ends = await retry(
            ask_brokers, self._errors, POSITIONING, deadline=POSITION_SECONDS
        )
        found = {
            each: self._placed(each, known.get(each), begins[each], ends[each], ids.get(each.topic))
            for each in partitions
        }
        for partition, position in found.items():
            self._consumer.seek(partition, position.offset)
        return found

    def _placed(
        self,
        partition: TopicPartition,
        known: Position | None,
        begin: int,
        end: int,
        topic_id: str | None,
    ) -> Position:
        """Where the partition continues, whose records are those from `begin` up to `end`."""
        if known is None:
            return Position(begin, topic_id)
        about = self._about(partition)
        if known.offset > end or not known.may_belong_to(topic_id):
            is_same = topic_id is not None and topic_id == known.topic_id
            event = "the topic is another one, reading it from its beginning"
            if is_same:
                event = "the partition has lost its end, going on where it ends"
            log.error(event, known_offset=known.offset, **about)
            return Position(end if is_same else begin, topic_id)
        if known.offset < begin:
            missing = begin - known.offset
            log.error("records are gone that were never read", missing=missing, **about)
            self.metrics.records_skipped.labels(self.role, "retention").inc(missing)
            known = known._replace(offset=begin)
        return known._replace(topic_id=topic_id or known.topic_id)

    def _about(self, partition: TopicPartition) -> dict[str, str | int]:
        """The fields of a log line."""
        return {"role": self.role, "topic": partition.topic, "partition": partition.partition}

    async def _leave(self) -> None:
        """Finish, commit and leave the group, within the drain timeout in all."""
        until = asyncio.get_running_loop().time() + _LEAVE_SHARE * self.settings.drain_timeout
        await self.on_partitions_revoked(list(self.partitions))
        left = max(_LEAST_LEAVE_SECONDS, until - asyncio.get_running_loop().time())
        if not await stop_consumer(self._consumer, left):
            log.warning("closing took too long", what="consumer", role=self.role)
        await self._cluster.close()
