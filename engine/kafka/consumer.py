"""The consumer of one role: fetches, feeds a worker a partition, commits explicit offsets.

Revoked and lost are different ends. A revoked partition finishes its batch and commits. A lost
one (the group gave this member up) may be somebody else's already: it is dropped, uncommitted.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import suppress

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import (
    IllegalStateError,
    KafkaError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)

from engine.kafka.commits import OffsetCommitter
from engine.kafka.lag import measure_lag
from engine.kafka.partition_worker import (
    BatchHandler,
    BatchWorker,
    PartitionRestartError,
    PartitionWorker,
    Records,
)
from engine.kafka.positions import Position, PositionStore
from engine.kafka.starting_points import GroupOffsets, StartingPoints
from engine.process.cancelling import cancel
from engine.process.failures import describe
from engine.process.metrics import Metrics

log = structlog.get_logger(__name__)

_POLL_SECONDS = 0.1
_START_SECONDS = 60.0
_LAG_SECONDS = 1.0
_RECOVERY_SECONDS = 2.0
_IDENTITY_SECONDS = 3.0
_IDENTITY_DEADLINE = 2.0

HandlerFactory = Callable[[TopicPartition], BatchHandler]
WorkerFactory = Callable[[TopicPartition, Callable[[], None]], PartitionWorker]


class PartitionedConsumer(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped
    """Consumes `topics` as one member of the consumer's group until told to stop.

    `starts`, if given, says where partitions go on, whatever the group has committed; those that
    it leaves out go on from their beginning. A partition waits, paused, until it has its place.
    Partitions are handled in order by `handler_for`'s handlers, or else by `worker_for`'s workers.
    Nothing is fetched while `has_room` says no; progress of a worker asks it again.
    """

    def __init__(
        self,
        *,
        consumer: AIOKafkaConsumer,
        topics: Collection[str],
        role: str,
        handler_for: HandlerFactory | None = None,
        worker_for: WorkerFactory | None = None,
        metrics: Metrics,
        batch_records: int,
        in_flight_records: int,
        commit_interval: float,
        drain_timeout: float,
        starts: PositionStore | None = None,
        has_room: Callable[[], bool] = lambda: True,
    ) -> None:
        self._consumer = consumer
        self._topics = topics
        self._role = role
        if (handler_for is None) == (worker_for is None):
            raise TypeError("one of handler_for and worker_for")
        self._handler_for = handler_for
        self._worker_for = worker_for
        self._metrics = metrics
        self._batch_records = batch_records
        self._in_flight_records = in_flight_records
        self._drain_timeout = drain_timeout
        self._has_room = has_room
        self._starts = StartingPoints(
            consumer, starts or GroupOffsets(consumer, metrics), role=role, metrics=metrics
        )
        # Else somebody else's offsets say where to go on: nothing has to wait for the group's.
        self._waits_for_commits = starts is None
        self._commits = OffsetCommitter(
            consumer=consumer,
            role=role,
            metrics=metrics,
            spacing=commit_interval,
            deadline=drain_timeout,
            may_commit=lambda: not self._is_lost(),
            topic_of=lambda partition: self._topic_ids.get(partition),
            on_commit=self._make_room,
        )
        self._positioning: set[asyncio.Task[None]] = set()
        self._workers: dict[TopicPartition, PartitionWorker] = {}
        self._topic_ids: dict[TopicPartition, str | None] = {}
        self._unplaced: set[TopicPartition] = set()
        self._progress = asyncio.Event()
        self._assigned_once = False
        self._failure: BaseException | None = None

    @property
    def assigned(self) -> bool:
        """Whether the group has given this member its share (which may be empty)."""
        return self._assigned_once

    async def run(self, stop: asyncio.Event) -> None:
        """Consume until `stop` is set or a handler fails; then drain, commit, leave the group.

        Raises what a handler raised, and KafkaError when the brokers refuse for good.
        """
        self._consumer.subscribe(list(self._topics), listener=self)
        background = [
            asyncio.create_task(work, name=f"{self._role} {name}")
            for name, work in {
                "commits": self._commits.run(self._workers.values),
                "lag": self._measure(),
                "topic ids": self._watch_topics(),
            }.items()
        ]
        try:
            await self._poll(stop, background)
        finally:
            await cancel(background)
            await self._leave()
        self._raise_failures()

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Start a worker for each partition that this member now owns."""
        partitions = list(assigned)
        if partitions:
            # Not here: the group waits for this call, and whoever is asked may be away for long.
            self._position(partitions, self._begin(partitions))
        self._assigned_once = True
        log.info("partitions assigned", role=self._role, partitions=_names(partitions))

    def _position(
        self, partitions: Collection[TopicPartition], work: Coroutine[None, None, None]
    ) -> None:
        """Pause the partitions until `work` has placed them."""
        self._consumer.pause(*partitions)
        self._unplaced.update(partitions)
        task = asyncio.create_task(work, name=f"{self._role} starting points")
        self._positioning.add(task)
        task.add_done_callback(lambda _: self._progress.set())

    async def _begin(self, partitions: Collection[TopicPartition]) -> None:
        places = await self._starts.seek(partitions)
        for partition, place in places.items():
            self._topic_ids[partition] = place.topic_id
            self._commits.begin(partition, place.offset)
            self._workers[partition] = self._new_worker(partition)
        self._resume(partitions)

    def _resume(self, partitions: Collection[TopicPartition]) -> None:
        self._unplaced.difference_update(partitions)
        self._consumer.resume(*partitions)

    async def _begin_again(
        self, partitions: Collection[TopicPartition], pause: float = 0.0
    ) -> None:
        """Their places are no more: finish what is in hand, and begin anew, after `pause`.

        (If another member owns the partition by now, the group tells us meanwhile.)
        """
        gone = [self._workers.pop(each) for each in partitions if each in self._workers]
        try:
            await _all(worker.finish(self._drain_timeout) for worker in gone)
            await self._commits.commit(gone)
        finally:
            await _all(worker.abandon() for worker in gone)
            for worker in gone:
                self._forget(worker)
        await asyncio.sleep(pause)
        await self._begin(partitions)

    def _new_worker(self, partition: TopicPartition) -> PartitionWorker:
        if self._worker_for is not None:
            return self._worker_for(partition, self._note_progress)
        assert self._handler_for is not None  # noqa: S101  # the constructor saw to it
        return BatchWorker(
            partition,
            handler=self._handler_for(partition),
            batch_records=self._batch_records,
            on_progress=self._note_progress,
        )

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """End the workers of partitions that this member no longer owns."""
        # aiokafka revokes all before it assigns: what is still being positioned is assigned anew.
        await cancel(self._positioning)
        self._positioning.clear()
        self._unplaced.clear()
        gone = [self._workers.pop(tp) for tp in revoked if tp in self._workers]
        if not gone:
            return
        if self._is_lost():
            log.warning("partitions lost", role=self._role, count=len(gone))
            await _all(worker.abandon() for worker in gone)
        else:
            await _all(worker.finish(self._drain_timeout) for worker in gone)
            await self._commits.commit(gone)
        for worker in gone:
            self._forget(worker)

    async def _poll(self, stop: asyncio.Event, background: list[asyncio.Task[None]]) -> None:
        stopping = asyncio.create_task(stop.wait())
        fetching = asyncio.create_task(self._start_and_fetch())
        work = [fetching, *background]
        try:
            await asyncio.wait([stopping, *work], return_when=asyncio.FIRST_COMPLETED)
            for task in work:
                if task.done():
                    task.result()
        finally:
            await cancel([stopping, fetching])

    async def _start_and_fetch(self) -> None:
        async with asyncio.timeout(_START_SECONDS):
            await self._consumer.start()
        while True:
            await self._await_room()
            fetched = await self._fetch()
            # Nothing awaits between aiokafka's buffer and the queue: what was fetched in one
            # assignment can never reach the worker of the next.
            for partition, records in fetched.items():
                if partition in self._workers:
                    self._workers[partition].offer(records)
            await asyncio.sleep(0)  # a full buffer makes getmany return without a pause

    async def _fetch(self) -> Mapping[TopicPartition, Records]:
        try:
            fetched: Mapping[TopicPartition, Records] = await self._consumer.getmany(
                timeout_ms=int(_POLL_SECONDS * 1000), max_records=self._batch_records
            )
        except NoOffsetForPartitionError:
            return {}  # it is being positioned
        except OffsetOutOfRangeError as error:
            for partition, position in error.args[0].items():
                if partition in self._workers and partition not in self._unplaced:
                    self._position([partition], self._go_on_behind_gap(partition, position))
            return {}
        return fetched

    async def _go_on_behind_gap(self, partition: TopicPartition, position: int) -> None:
        """The brokers have nothing at `position`: retention took it, or it is another topic."""
        reach = await self._starts.reach([partition])
        here = Position(position, self._topic_ids.get(partition))
        begin = reach.begin[partition]
        if position >= begin or not here.may_belong_to(reach.topic_ids.get(partition.topic)):
            await self._begin_again([partition])
            return
        self._starts.note_skipped(partition, begin - position)
        self._consumer.seek(partition, begin)
        self._resume([partition])

    async def _watch_topics(self) -> None:
        """See topics that are deleted and made anew, within seconds, until cancelled."""
        while True:
            await asyncio.sleep(_IDENTITY_SECONDS)
            partitions = set(self._workers)
            with suppress(KafkaError, OSError, TimeoutError):  # asked again soon
                async with asyncio.timeout(_IDENTITY_DEADLINE):
                    ids = await self._starts.topic_ids({each.topic for each in partitions})
                anew = [
                    each
                    for each in partitions & self._workers.keys()
                    if each not in self._unplaced
                    and not Position(0, self._topic_ids.get(each)).may_belong_to(
                        ids.get(each.topic)
                    )
                ]
                if anew:
                    self._position(anew, self._begin_again(anew))

    async def _await_room(self) -> None:
        """Backpressure: full partitions are paused; over the bound in all, nothing is fetched."""
        while True:
            self._progress.clear()
            self._pause_full_partitions()
            self._raise_failures()
            in_flight = sum(map(self._in_flight, self._workers.values()))
            if in_flight < self._in_flight_records and self._has_room():
                return
            await self._progress.wait()

    def _in_flight(self, worker: PartitionWorker) -> int:
        """Records of its that a crash would have read again."""
        return worker.pending + (self._commits.behind(worker) if self._waits_for_commits else 0)

    def _note_progress(self) -> None:
        self._commits.note_progress()
        self._make_room()

    def _make_room(self) -> None:
        self._progress.set()
        self._pause_full_partitions()  # now: getmany may wait on others while this one has room

    def _pause_full_partitions(self) -> None:
        """Pause at two batches, resume at one: aiokafka throws away what it holds of a paused
        partition, so that it must not happen often."""
        paused = self._consumer.paused() if self._workers else set()
        for partition, worker in self._workers.items():
            if partition in self._unplaced:
                continue
            if partition in paused:
                if self._in_flight(worker) <= self._batch_records:
                    self._consumer.resume(partition)
            elif self._in_flight(worker) >= 2 * self._batch_records:
                self._consumer.pause(partition)

    def _raise_failures(self) -> None:
        for task in [task for task in self._positioning if task.done()]:
            self._positioning.discard(task)
            if not task.cancelled():
                task.result()
        if self._failure is not None:
            raise self._failure
        for partition, worker in self._workers.items():
            if isinstance(worker.failure, PartitionRestartError):
                self._recover(partition, worker.failure)
            elif worker.failure is not None:
                raise worker.failure

    def _recover(self, partition: TopicPartition, failure: PartitionRestartError) -> None:
        if partition in self._unplaced:
            return
        log.warning(
            "beginning a partition again",
            role=self._role,
            topic=partition.topic,
            partition=partition.partition,
            error=describe(failure),
        )
        self._metrics.kafka_errors.inc()
        self._position([partition], self._begin_again([partition], pause=_RECOVERY_SECONDS))

    async def _measure(self) -> None:
        while True:
            await asyncio.sleep(_LAG_SECONDS)
            with suppress(TimeoutError, IllegalStateError):  # not known now; asked again soon
                async with asyncio.timeout(_LAG_SECONDS):
                    await measure_lag(self._consumer, self._role, self._workers, self._metrics)

    async def _leave(self) -> None:
        """Shutdown: finish the batches in hand, commit, leave the group."""
        await cancel(self._positioning)
        workers = list(self._workers.values())
        await _all(worker.finish(self._drain_timeout) for worker in workers)
        await self._commits.commit(workers)
        for worker in workers:
            self._forget(worker)
        self._workers.clear()
        try:
            async with asyncio.timeout(self._drain_timeout):
                await self._consumer.stop()
        except TimeoutError:
            log.warning("leaving the group took too long", role=self._role)

    def _is_lost(self) -> bool:
        """Whether the group has given this member up: it has no generation any more.

        aiokafka calls one listener for revoked and lost; its coordinator knows the difference.
        """
        coordinator = self._consumer._coordinator  # noqa: SLF001  # no public way to ask
        return getattr(coordinator, "generation", 0) < 0

    def _forget(self, worker: PartitionWorker) -> None:
        topic, number = worker.partition
        if not isinstance(worker.failure, PartitionRestartError):
            self._failure = self._failure or worker.failure
        self._commits.forget(worker.partition)
        with suppress(KeyError):  # never measured
            self._metrics.lag.remove(self._role, topic, str(number))


def _names(partitions: Iterable[TopicPartition]) -> list[str]:
    return sorted(f"{tp.topic}/{tp.partition}" for tp in partitions)


async def _all(endings: Iterable[Coroutine[None, None, None]]) -> None:
    await asyncio.gather(*endings)
