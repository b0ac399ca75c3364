"""The partitions that one member of a group owns: their positions, workers, commits, their end.

A revoked partition finishes the records in flight, then commits. So does a lost one (the group gave
this member up), of which aiokafka does not tell: the group refuses its commit, and what it still
publishes has the ids of the next owner's messages.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

from engine.kafka.client import KafkaCluster
from engine.kafka.offsets import POSITION_SECONDS, POSITIONING, Position, Positions, PositionStore
from engine.kafka.workers import PartitionRestartError, PartitionWorker
from engine.process.failures import Backoff, describe, retry
from engine.process.lifecycle import cancel
from engine.process.metrics import Metrics, StepTimer

log = structlog.get_logger(__name__)

_RESTART_SECONDS = 2.0
_IDENTITY_SECONDS = 3.0
_COMMITTING = "committing"
_COMMIT_RETRY_SECONDS = 0.5
_COMMIT_SECONDS = 10.0
# The parts of the drain timeout in which workers finish, and in which that is committed. The rest
# is for leaving the group, and for closing what the process has open.
_DRAIN_SHARE, _COMMIT_SHARE = 0.6, 0.7

# Makes a worker: the partition, its position, and the callback for progress.
WorkerFactory = Callable[[TopicPartition, Position, Callable[[], None]], PartitionWorker]


class AssignedPartition:
    """One assignment of one partition: its worker, its topic, and its committed position.

    `lag` is the number of records that are left, None while it is not known, and `newest` the time
    (epoch s) of the last fetched record.
    """

    lag: int | None = None
    newest = 0.0

    def __init__(self, worker: PartitionWorker, position: Position) -> None:
        """The worker begins at `position`, which need not be committed."""
        self.worker = worker
        self.committed = position

    def to_commit(self) -> Position | None:
        """The position to commit, or None."""
        done, ranges = self.worker.done_offset, self.worker.finished_ranges
        if done is None and not ranges:
            return None
        offset = self.committed.offset if done is None else done
        position = Position(offset, self.committed.topic_id, ranges)
        return None if position == self.committed else position

    @property
    def uncommitted(self) -> int:
        """How many offsets are done and not committed."""
        return max(0, (self.worker.done_offset or 0) - self.committed.offset)


class Assignment:
    """Gives each partition a position and a worker; until it has both, the partition is paused.

    Offsets are committed as soon as their records are done, so that a crash repeats little: one
    request at a time commits all partitions, and what becomes done meanwhile is in the next one.
    `on_progress` is called when a worker has finished records, a position is set, or a commit has
    succeeded.
    """

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        cluster: KafkaCluster,
        *,
        role: str,
        store: PositionStore,
        worker_for: WorkerFactory,
        metrics: Metrics,
        drain_timeout: float,
        on_progress: Callable[[], None],
    ) -> None:
        self.partitions: dict[TopicPartition, AssignedPartition] = {}
        self._consumer = consumer
        self._cluster = cluster
        self._role = role
        self._store = store
        self._worker_for = worker_for
        self._metrics = metrics
        self._errors = metrics.kafka_errors
        self._step = StepTimer(metrics, role)
        self._drain_timeout = drain_timeout
        self._on_progress = on_progress
        self._progress = asyncio.Event()
        self._unplaced: set[TopicPartition] = set()
        self._positioning: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None

    def is_placed(self, partition: TopicPartition) -> bool:
        """Whether the partition has its position; if not, it stays paused."""
        return partition not in self._unplaced

    def begin(self, partitions: Collection[TopicPartition]) -> None:
        """Find the positions in the background, then start the workers."""
        # In the background, because the group waits for its listener, and the servers that have
        # the positions may be down for long.
        self._position(partitions, self._begin(partitions))

    def begin_again(self, partitions: Iterable[TopicPartition], pause: float = 0.0) -> None:
        """Finish the batches in flight and, after `pause` seconds, find new positions.

        (If another member owns a partition by now, the group revokes it meanwhile.)
        """
        placed = [each for each in partitions if each in self.partitions and self.is_placed(each)]
        if placed:
            self._position(placed, self._begin_again(placed, pause))

    async def end(self, partitions: Iterable[TopicPartition]) -> None:
        """Finish the batches in flight of these partitions, commit, and end their workers."""
        # aiokafka revokes all before it assigns: partitions without a position are assigned again.
        await cancel(self._positioning)
        self._positioning.clear()
        self._unplaced.clear()
        await self._end(partitions)

    def raise_failures(self) -> None:
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
            if failure is not None and self.is_placed(partition):
                event, error = "beginning a partition again", describe(failure)
                self._log(log.warning, event, partition, error=error)
                self._errors.inc()
                self.begin_again([partition], pause=_RESTART_SECONDS)

    async def run_commits(self) -> None:
        """Commit whenever there is an offset to commit, until cancelled."""
        backoff = Backoff(_COMMIT_RETRY_SECONDS, _COMMIT_RETRY_SECONDS)
        while True:
            await self._progress.wait()
            self._progress.clear()
            if not await self._commit(dict(self.partitions)):
                self._progress.set()
                await backoff.pause()

    async def watch_topics(self) -> None:
        """Restart partitions whose topic was deleted and created again, until cancelled."""
        while True:
            await asyncio.sleep(_IDENTITY_SECONDS)
            with suppress(KafkaError, OSError, TimeoutError):  # checked again soon
                topics = {partition.topic for partition in self.partitions}
                ids = await self._cluster.topic_ids(topics) if topics else {}
                self.begin_again(
                    partition
                    for partition, assigned in self.partitions.items()
                    if not assigned.committed.may_belong_to(ids.get(partition.topic))
                )

    def _note_progress(self) -> None:
        self._progress.set()
        self._on_progress()

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
            if (position := each.to_commit()) is not None
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
        self._on_progress()
        return True

    def _position(
        self, partitions: Collection[TopicPartition], work: Coroutine[None, None, None]
    ) -> None:
        """Pause the partitions until `work` has set their positions."""
        self._consumer.pause(*partitions)
        self._unplaced.update(partitions)
        task = asyncio.create_task(work, name=f"{self._role} positions")
        self._positioning.add(task)
        task.add_done_callback(lambda _: self._note_progress())

    async def _begin(self, partitions: Collection[TopicPartition]) -> None:
        for partition, position in (await self._seek(partitions)).items():
            worker = self._worker_for(partition, position, self._note_progress)
            self.partitions[partition] = AssignedPartition(worker, position)
        self._unplaced.difference_update(partitions)
        self._consumer.resume(*partitions)

    async def _begin_again(self, partitions: Collection[TopicPartition], pause: float) -> None:
        await self._end(partitions)
        await asyncio.sleep(pause)
        await self._begin(partitions)

    async def _end(self, partitions: Iterable[TopicPartition]) -> None:
        ended = {each: self.partitions.pop(each) for each in partitions if each in self.partitions}
        clock = asyncio.get_running_loop().time
        until = clock() + _COMMIT_SHARE * self._drain_timeout
        deadline = _DRAIN_SHARE * self._drain_timeout
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
                    self._metrics.lag.remove(self._role, topic, str(number))

    async def _seek(self, partitions: Collection[TopicPartition]) -> Positions:
        """Move each partition to its position, and return the positions. Waits for brokers.

        If a topic is another one than the position's, it is read from its beginning. Deleted
        records are skipped. Both are logged, and skipped records are counted. Raises the store's
        errors.
        """

        async def ask_brokers() -> tuple[Mapping[str, str], Any, Any]:
            ids = await self._cluster.topic_ids({partition.topic for partition in partitions})
            begins = await self._consumer.beginning_offsets(partitions)
            return ids, begins, await self._consumer.end_offsets(partitions)

        while True:
            known = await self._store.load(partitions)
            ids, begins, ends = await retry(
                ask_brokers, self._errors, POSITIONING, deadline=POSITION_SECONDS
            )
            found = {
                each: self._placed(
                    each, known.get(each), begins[each], ends[each], ids.get(each.topic)
                )
                for each in partitions
            }
            changed = {each: at for each, at in found.items() if at != known.get(each)}
            if not changed or await self._store.replace(known, changed):
                break
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
        is_same = topic_id is not None and topic_id == known.topic_id
        if not known.may_belong_to(topic_id) or (known.offset > end and not is_same):
            event = "the topic is another one, reading it from its beginning"
            self._log(log.error, event, partition, known_offset=known.offset)
            return Position(begin, topic_id)
        if known.offset > end:
            event = "the partition has lost its end, going on where it ends"
            self._log(log.error, event, partition, known_offset=known.offset)
            return Position(end, topic_id)
        if known.offset < begin:
            event, missing = "records are gone that were never read", begin - known.offset
            self._log(log.error, event, partition, missing=missing)
            self._metrics.records_skipped.labels(self._role, "retention").inc(missing)
            known = known._replace(offset=begin)
        return known._replace(topic_id=topic_id or known.topic_id)

    def _log(
        self, write: Callable[..., None], event: str, partition: TopicPartition, **fields: str | int
    ) -> None:
        topic, number = partition
        write(event, role=self._role, topic=topic, partition=number, **fields)
