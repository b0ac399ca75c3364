"""The partitions that one member of a group owns: their positions, workers, commits, their end.

A revoked partition finishes the records in flight, then commits. So does a lost one (the group gave
this member up), of which aiokafka does not tell: the group refuses its commit, and what it still
publishes has the ids of the next owner's messages.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import suppress

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import (
    CommitFailedError,
    IllegalStateError,
    KafkaError,
)

from engine.kafka.client import KafkaCluster
from engine.kafka.errors import PartitionRestartError
from engine.kafka.offsets import Position, Positioner
from engine.kafka.workers import PartitionWorker
from engine.process.failures import Backoff, describe
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
    """One assignment of one partition: its worker, its topic, and its committed position."""

    def __init__(self, worker: PartitionWorker, position: Position) -> None:
        """The worker begins at `position`, which need not be committed."""
        self.worker = worker
        self.topic_id = position.topic_id
        self._committed = position

    def to_commit(self) -> Position | None:
        """The position to commit, or None."""
        done, ranges = self.worker.done_offset, self.worker.finished_ranges
        if done is None and not ranges:
            return None
        position = Position(self._committed.offset if done is None else done, self.topic_id, ranges)
        return None if position == self._committed else position

    @property
    def uncommitted(self) -> int:
        """How many offsets are done and not committed."""
        return max(0, (self.worker.done_offset or 0) - self._committed.offset)

    def note_committed(self, position: Position) -> None:
        """The group has committed `position`."""
        self._committed = position


class OffsetCommitter:
    """Commits offsets as soon as their records are done, so that a crash repeats little.

    One request at a time commits all partitions; offsets that become done meanwhile are in the next
    request. `on_commit` is called after each success.
    """

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        role: str,
        metrics: Metrics,
        *,
        on_commit: Callable[[], None],
    ) -> None:
        self._consumer = consumer
        self._role = role
        self._errors = metrics.kafka_errors
        self._step = StepTimer(metrics, role)
        self._on_commit = on_commit
        self._progress = asyncio.Event()

    def note_progress(self) -> None:
        """A worker may have finished more records."""
        self._progress.set()

    async def run(self, partitions: Mapping[TopicPartition, AssignedPartition]) -> None:
        """Commit whenever there is an offset to commit, until cancelled."""
        backoff = Backoff(_COMMIT_RETRY_SECONDS, _COMMIT_RETRY_SECONDS)
        while True:
            await self._progress.wait()
            self._progress.clear()
            if not await self.commit(dict(partitions)):
                self._progress.set()
                await backoff.pause()

    async def commit(
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
            partitions[partition].note_committed(position)
        self._on_commit()
        return True


class Assignment:
    """Gives each partition a position and a worker; until it has both, the partition is paused.

    Workers call `on_progress`, and so does positioning when it is done.
    """

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        cluster: KafkaCluster,
        *,
        role: str,
        positioner: Positioner,
        committer: OffsetCommitter,
        worker_for: WorkerFactory,
        metrics: Metrics,
        drain_timeout: float,
        on_progress: Callable[[], None],
    ) -> None:
        self.partitions: dict[TopicPartition, AssignedPartition] = {}
        self._consumer = consumer
        self._cluster = cluster
        self._role = role
        self._positioner = positioner
        self._committer = committer
        self._worker_for = worker_for
        self._metrics = metrics
        self._drain_timeout = drain_timeout
        self._on_progress = on_progress
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

    async def end(self, revoked: Iterable[TopicPartition]) -> None:
        """End the workers of partitions that this member no longer owns."""
        # aiokafka revokes all before it assigns: partitions without a position are assigned again.
        await self._cancel_positioning()
        ended = {each: self.partitions.pop(each) for each in revoked if each in self.partitions}
        await self._drain(ended)
        self._forget(ended)

    async def end_all(self) -> None:
        """At shutdown: workers finish the batches in flight, and their offsets are committed."""
        await self._cancel_positioning()
        ended = dict(self.partitions)
        await self._drain(ended)
        self._forget(ended)
        self.partitions.clear()

    def skip_gap(self, partition: TopicPartition, position: int) -> None:
        """The brokers have no record at `position`: it was deleted, or the topic is another."""
        if partition in self.partitions and self.is_placed(partition):
            self._position([partition], self._skip_gap(partition, position))

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
            if isinstance(failure, PartitionRestartError):
                self._restart(partition, failure)
            elif failure is not None:
                raise failure

    async def watch_topics(self) -> None:
        """Restart partitions whose topic was deleted and created again, until cancelled."""
        while True:
            await asyncio.sleep(_IDENTITY_SECONDS)
            with suppress(KafkaError, OSError, TimeoutError):  # checked again soon
                topics = {partition.topic for partition in self.partitions}
                ids = await self._cluster.topic_ids(topics) if topics else {}
                recreated = [
                    partition
                    for partition, assigned in self.partitions.items()
                    if self.is_placed(partition)
                    and not Position(0, assigned.topic_id).may_belong_to(ids.get(partition.topic))
                ]
                if recreated:
                    self._position(recreated, self._begin_again(recreated))

    def _position(
        self, partitions: Collection[TopicPartition], work: Coroutine[None, None, None]
    ) -> None:
        """Pause the partitions until `work` has set their positions."""
        self._consumer.pause(*partitions)
        self._unplaced.update(partitions)
        task = asyncio.create_task(work, name=f"{self._role} positions")
        self._positioning.add(task)
        task.add_done_callback(lambda _: self._on_progress())

    async def _cancel_positioning(self) -> None:
        await cancel(self._positioning)
        self._positioning.clear()
        self._unplaced.clear()

    async def _begin(self, partitions: Collection[TopicPartition]) -> None:
        positions = await self._positioner.seek(partitions)
        for partition, position in positions.items():
            worker = self._worker_for(partition, position, self._on_progress)
            self.partitions[partition] = AssignedPartition(worker, position)
        self._resume(partitions)

    def _resume(self, partitions: Collection[TopicPartition]) -> None:
        self._unplaced.difference_update(partitions)
        self._consumer.resume(*partitions)

    async def _begin_again(
        self, partitions: Collection[TopicPartition], pause: float = 0.0
    ) -> None:
        """Finish the batch in flight and, after `pause`, find new positions.

        (If another member owns the partition by now, the group revokes it meanwhile.)
        """
        ended = {each: self.partitions.pop(each) for each in partitions if each in self.partitions}
        try:
            await self._drain(ended)
        finally:
            await asyncio.gather(*(each.worker.abandon() for each in ended.values()))
            self._forget(ended)
        await asyncio.sleep(pause)
        await self._begin(partitions)

    async def _skip_gap(self, partition: TopicPartition, position: int) -> None:
        extent = await self._positioner.extent([partition])
        here = Position(position, self.partitions[partition].topic_id)
        begin = extent.begin[partition]
        if position >= begin or not here.may_belong_to(extent.topic_ids.get(partition.topic)):
            await self._begin_again([partition])
            return
        self._positioner.note_skipped(partition, begin - position)
        self._consumer.seek(partition, begin)
        self._resume([partition])

    def _restart(self, partition: TopicPartition, failure: PartitionRestartError) -> None:
        if not self.is_placed(partition):
            return
        log.warning(
            "beginning a partition again",
            role=self._role,
            topic=partition.topic,
            partition=partition.partition,
            error=describe(failure),
        )
        self._metrics.kafka_errors.inc()
        self._position([partition], self._begin_again([partition], pause=_RESTART_SECONDS))

    async def _drain(self, ended: Mapping[TopicPartition, AssignedPartition]) -> None:
        until = asyncio.get_running_loop().time() + _COMMIT_SHARE * self._drain_timeout
        deadline = _DRAIN_SHARE * self._drain_timeout
        await asyncio.gather(*(each.worker.finish(deadline) for each in ended.values()))
        await self._committer.commit(ended, until - asyncio.get_running_loop().time())

    def _forget(self, ended: Mapping[TopicPartition, AssignedPartition]) -> None:
        for (topic, number), assigned in ended.items():
            failure = assigned.worker.failure
            if not isinstance(failure, PartitionRestartError):
                self._failure = self._failure or failure
            with suppress(KeyError):  # never measured
                self._metrics.lag.remove(self._role, topic, str(number))
