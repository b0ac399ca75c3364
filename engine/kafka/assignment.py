"""The partitions that one member of a group owns: their positions, their workers, their end.

A revoked partition finishes its batch and commits. A lost partition (the group gave this member up)
may have another owner already: it is dropped without a commit.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable
from contextlib import suppress

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from engine.kafka.committer import AssignedPartition, OffsetCommitter
from engine.kafka.errors import PartitionRestartError
from engine.kafka.partition_worker import PartitionWorker
from engine.kafka.positions import Position, Positioner
from engine.process.cancelling import cancel
from engine.process.failures import describe
from engine.process.metrics import Metrics

log = structlog.get_logger(__name__)

_RESTART_SECONDS = 2.0
_IDENTITY_SECONDS = 3.0
_IDENTITY_DEADLINE = 2.0

WorkerFactory = Callable[[TopicPartition, Callable[[], None]], PartitionWorker]


class Assignment:
    """Gives each partition a position and a worker; until it has both, the partition is paused.

    Workers call `on_progress`, and so does positioning when it is done.
    """

    def __init__(
        self,
        *,
        consumer: AIOKafkaConsumer,
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

    async def end(self, revoked: Iterable[TopicPartition], *, lost: bool) -> None:
        """End the workers of partitions that this member no longer owns."""
        # aiokafka revokes all before it assigns: partitions without a position are assigned again.
        await self._cancel_positioning()
        ended = [self.partitions.pop(each) for each in revoked if each in self.partitions]
        if ended and lost:
            log.warning("partitions lost", role=self._role, count=len(ended))
            await asyncio.gather(*(each.worker.abandon() for each in ended))
        else:
            await self._drain(ended)
        self._forget(ended)

    async def end_all(self) -> None:
        """At shutdown: workers finish the batches in flight, and their offsets are committed."""
        await self._cancel_positioning()
        ended = list(self.partitions.values())
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
                async with asyncio.timeout(_IDENTITY_DEADLINE):
                    topics = {partition.topic for partition in self.partitions}
                    ids = await self._positioner.topic_ids(topics)
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
            worker = self._worker_for(partition, self._on_progress)
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
        ended = [self.partitions.pop(each) for each in partitions if each in self.partitions]
        try:
            await self._drain(ended)
        finally:
            await asyncio.gather(*(each.worker.abandon() for each in ended))
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

    async def _drain(self, ended: Collection[AssignedPartition]) -> None:
        await asyncio.gather(*(each.worker.finish(self._drain_timeout) for each in ended))
        await self._committer.commit(ended)

    def _forget(self, ended: Iterable[AssignedPartition]) -> None:
        for each in ended:
            failure = each.worker.failure
            if not isinstance(failure, PartitionRestartError):
                self._failure = self._failure or failure
            topic, number = each.partition
            with suppress(KeyError):  # never measured
                self._metrics.lag.remove(self._role, topic, str(number))
