"""The consumer of one role: fetches, feeds a worker a partition, commits explicit offsets.

Revoked and lost are different ends. A revoked partition finishes its batch and commits. A lost
one (the group gave this member up) may be somebody else's already: it is dropped, uncommitted.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable
from contextlib import suppress

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

from engine.cancelling import cancel
from engine.failures import describe, kafka_may_recover
from engine.kafka.starting_points import StartingPoints, Starts
from engine.kafka.worker import BatchHandler, PartitionWorker, Records, Worker
from engine.metrics import Metrics

log = structlog.get_logger(__name__)

_POLL_SECONDS = 0.1
_START_SECONDS = 60.0
_LAG_SECONDS = 1.0

HandlerFactory = Callable[[TopicPartition], BatchHandler]
WorkerFactory = Callable[[TopicPartition, Callable[[], None]], Worker]


class PartitionedConsumer(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped
    """Consumes `topics` as one member of the consumer's group until told to stop.

    `starts`, if given, says where partitions go on, whatever the group has committed; those that
    it leaves out go on from their beginning. A partition waits, paused, until it has answered.
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
        starts: Starts | None = None,
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
        self._commit_interval = commit_interval
        self._drain_timeout = drain_timeout
        self._has_room = has_room
        self._starts = None if starts is None else StartingPoints(consumer, starts)
        self._positioning: set[asyncio.Task[None]] = set()
        self._workers: dict[TopicPartition, Worker] = {}
        self._committed: dict[TopicPartition, int] = {}
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
        background = asyncio.create_task(self._commit_and_measure(), name=f"{self._role} commits")
        try:
            await self._poll(stop, background)
        finally:
            await cancel([background])
            await self._leave()
        self._raise_failures()

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Start a worker for each partition that this member now owns."""
        partitions = list(assigned)
        if self._starts is None:
            self._begin(partitions)
        elif partitions:
            # Not here: the group waits for this call, and whoever is asked may be away for long.
            self._consumer.pause(*partitions)
            task = asyncio.create_task(self._begin_at_starts(self._starts, partitions))
            self._positioning.add(task)
            task.add_done_callback(lambda _: self._progress.set())
        self._assigned_once = True
        log.info("partitions assigned", role=self._role, partitions=_names(partitions))

    async def _begin_at_starts(
        self, starts: StartingPoints, partitions: list[TopicPartition]
    ) -> None:
        await starts.seek(partitions)
        self._begin(partitions)
        self._consumer.resume(*partitions)

    def _begin(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._workers[partition] = self._new_worker(partition)

    def _new_worker(self, partition: TopicPartition) -> Worker:
        if self._worker_for is not None:
            return self._worker_for(partition, self._note_progress)
        assert self._handler_for is not None  # noqa: S101  # the constructor saw to it
        return PartitionWorker(
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
        gone = [self._workers.pop(tp) for tp in revoked if tp in self._workers]
        if not gone:
            return
        if self._is_lost():
            log.warning("partitions lost", role=self._role, count=len(gone))
            await _all(worker.abandon() for worker in gone)
        else:
            await _all(worker.finish(self._drain_timeout) for worker in gone)
            await self._commit(gone)
        for worker in gone:
            self._forget(worker)

    async def _poll(self, stop: asyncio.Event, background: asyncio.Task[None]) -> None:
        stopping = asyncio.create_task(stop.wait())
        fetching = asyncio.create_task(self._start_and_fetch())
        work = [fetching, background]
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
            fetched: dict[TopicPartition, Records] = await self._consumer.getmany(
                timeout_ms=int(_POLL_SECONDS * 1000), max_records=self._batch_records
            )
            # Nothing awaits between aiokafka's buffer and the queue: what was fetched in one
            # assignment can never reach the worker of the next.
            for partition, records in fetched.items():
                if partition in self._workers:
                    self._workers[partition].offer(records)
            await asyncio.sleep(0)  # a full buffer makes getmany return without a pause

    async def _await_room(self) -> None:
        """Backpressure: full partitions are paused; over the bound in all, nothing is fetched."""
        while True:
            self._progress.clear()
            self._pause_full_partitions()
            self._raise_failures()
            in_flight = sum(w.pending for w in self._workers.values())
            if in_flight < self._in_flight_records and self._has_room():
                return
            await self._progress.wait()

    def _note_progress(self) -> None:
        self._progress.set()
        self._pause_full_partitions()  # now: getmany may wait on others while this one has room

    def _pause_full_partitions(self) -> None:
        """Pause at two batches, resume at one: aiokafka throws away what it holds of a paused
        partition, so that it must not happen often."""
        paused = self._consumer.paused() if self._workers else set()
        for partition, worker in self._workers.items():
            if partition in paused:
                if worker.pending <= self._batch_records:
                    self._consumer.resume(partition)
            elif worker.pending >= 2 * self._batch_records:
                self._consumer.pause(partition)

    def _raise_failures(self) -> None:
        for task in [task for task in self._positioning if task.done()]:
            self._positioning.discard(task)
            if not task.cancelled():
                task.result()
        failures = [worker.failure for worker in self._workers.values()]
        for failure in (self._failure, *failures):
            if failure is not None:
                raise failure

    async def _commit_and_measure(self) -> None:
        since_lag = 0.0
        while True:
            await asyncio.sleep(self._commit_interval)
            await self._commit(self._workers.values())
            since_lag += self._commit_interval
            if since_lag >= _LAG_SECONDS:
                since_lag = 0.0
                with suppress(TimeoutError, IllegalStateError):  # not known now; asked again soon
                    async with asyncio.timeout(_LAG_SECONDS):
                        await self._measure_lag()

    async def _commit(self, workers: Iterable[Worker]) -> None:
        """Commit how far each worker is done. A commit that the group refuses is not repeated:
        the partitions are somebody else's, who begins where the last commit was."""
        offsets = {
            worker.partition: worker.done_offset
            for worker in workers
            if worker.done_offset is not None
            and worker.done_offset != self._committed.get(worker.partition)
        }
        if not offsets or self._is_lost():
            return
        try:
            async with asyncio.timeout(self._drain_timeout):
                await self._consumer.commit(offsets)
        except (CommitFailedError, IllegalStateError, TimeoutError) as error:
            log.warning("commit refused", role=self._role, error=describe(error))
        except KafkaError as error:
            if not kafka_may_recover(error):
                raise
            log.warning("commit failed, trying again", role=self._role, error=describe(error))
        else:
            self._committed.update(offsets)

    async def _leave(self) -> None:
        """Shutdown: finish the batches in hand, commit, leave the group."""
        await cancel(self._positioning)
        workers = list(self._workers.values())
        await _all(worker.finish(self._drain_timeout) for worker in workers)
        await self._commit(workers)
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

    async def _measure_lag(self) -> None:
        for partition, worker in list(self._workers.items()):
            with suppress(IllegalStateError, TimeoutError):  # revoked meanwhile, or no position
                await self._measure_lag_of(partition, worker)

    async def _measure_lag_of(self, partition: TopicPartition, worker: Worker) -> None:
        if partition not in self._consumer.assignment():
            return
        end = self._consumer.highwater(partition)
        if end is None:
            return
        async with asyncio.timeout(_LAG_SECONDS):
            fetched = await self._consumer.position(partition)
        if self._workers.get(partition) is worker:
            labels = (self._role, partition.topic, str(partition.partition))
            self._metrics.lag.labels(*labels).set(max(0, end - fetched + worker.pending))

    def _forget(self, worker: Worker) -> None:
        topic, number = worker.partition
        self._failure = self._failure or worker.failure
        self._committed.pop(worker.partition, None)
        with suppress(KeyError):  # never measured
            self._metrics.lag.remove(self._role, topic, str(number))


def _names(partitions: Iterable[TopicPartition]) -> list[str]:
    return sorted(f"{tp.topic}/{tp.partition}" for tp in partitions)


async def _all(endings: Iterable[Coroutine[None, None, None]]) -> None:
    await asyncio.gather(*endings)
