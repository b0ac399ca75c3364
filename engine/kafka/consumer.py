"""The consumer of one role: fetches records, passes them to workers, commits offsets.

assignment.py handles each partition from its assignment to its end.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import NoOffsetForPartitionError, OffsetOutOfRangeError

from engine.kafka.assignment import Assignment, WorkerFactory
from engine.kafka.committer import AssignedPartition, OffsetCommitter
from engine.kafka.consumer_lag import ConsumerLag
from engine.kafka.fetch_pace import FetchPace, FetchWait
from engine.kafka.partition_worker import Records
from engine.kafka.positions import GroupOffsets, Positioner, PositionStore
from engine.process.cancelling import cancel
from engine.process.metrics import Metrics, StepTimer

log = structlog.get_logger(__name__)

_POLL_SECONDS = 0.1
_START_SECONDS = 60.0


class PartitionedConsumer(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped
    """Consumes `topics` as one member of the consumer's group until it is stopped.

    `worker_for` makes the worker of one assignment of one partition. `positions`, if given, has the
    positions at which partitions begin, whatever the group has committed; other partitions begin at
    their first record. Nothing is fetched while `has_room()` is false; it is called again when a
    worker makes progress. `fetch_wait` (seconds) is the longest time that a broker holds a fetch.
    """

    def __init__(
        self,
        *,
        consumer: AIOKafkaConsumer,
        topics: Collection[str],
        role: str,
        worker_for: WorkerFactory,
        metrics: Metrics,
        batch_records: int,
        in_flight_records: int,
        fetch_wait: float,
        commit_interval: float,
        drain_timeout: float,
        positions: PositionStore | None = None,
        has_room: Callable[[], bool] = lambda: True,
    ) -> None:
        self._consumer = consumer
        self._topics = topics
        self._role = role
        self._metrics = metrics
        self._batch_records = batch_records
        self._in_flight_records = in_flight_records
        self._drain_timeout = drain_timeout
        self._has_room = has_room
        # With another store of positions the group's commits do not decide what a crash repeats.
        self._waits_for_commits = positions is None
        self._progress = asyncio.Event()
        self._assigned_once = False
        self._has_backpressure = False
        self._any_full = False
        self._pace = FetchPace(batch_records)
        self._fetch_wait = FetchWait(consumer, int(fetch_wait * 1000))
        self._committer = OffsetCommitter(
            consumer=consumer,
            role=role,
            errors=metrics.kafka_errors,
            step=StepTimer(metrics, role),
            spacing=commit_interval,
            deadline=drain_timeout,
            may_commit=lambda: not self._is_lost(),
            on_commit=self._make_room,
        )
        store = positions or GroupOffsets(consumer, metrics)
        self._assignment = Assignment(
            consumer=consumer,
            role=role,
            positioner=Positioner(consumer, store, role=role, metrics=metrics),
            committer=self._committer,
            worker_for=worker_for,
            metrics=metrics,
            drain_timeout=drain_timeout,
            on_progress=self._note_progress,
        )
        self._lag = ConsumerLag(
            consumer=consumer, role=role, partitions=self.partitions, metrics=metrics
        )

    @property
    def assigned(self) -> bool:
        """Whether the group has given this member its share (which may be empty)."""
        return self._assigned_once

    @property
    def partitions(self) -> Mapping[TopicPartition, AssignedPartition]:
        """The partitions that have a worker."""
        return self._assignment.partitions

    def seconds_behind(self, now: float) -> float | None:
        """How far this member is behind the ends of its partitions; None while it is not known."""
        return self._lag.seconds_behind(now) if self._assigned_once else None

    async def run(self, stop: asyncio.Event) -> None:
        """Consume until `stop` is set or a worker fails; then drain, commit, leave the group.

        Raises the errors of workers, and KafkaError if the brokers refuse permanently.
        """
        self._consumer.subscribe(list(self._topics), listener=self)
        background = [
            asyncio.create_task(work, name=f"{self._role} {name}")
            for name, work in {
                "commits": self._committer.run(self.partitions.values),
                "lag": self._lag.run(),
                "topic ids": self._assignment.watch_topics(),
            }.items()
        ]
        try:
            await self._run_until(stop, background)
        finally:
            await cancel(background)
            await self._leave()
        self._assignment.raise_failures()

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """The group has given this member these partitions."""
        partitions = list(assigned)
        if partitions:
            self._assignment.begin(partitions)
        self._assigned_once = True
        names = sorted(f"{each.topic}/{each.partition}" for each in partitions)
        log.info("partitions assigned", role=self._role, partitions=names)

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """The group revokes these partitions, or has revoked them already."""
        await self._assignment.end(revoked, lost=self._is_lost())

    async def _run_until(self, stop: asyncio.Event, background: list[asyncio.Task[None]]) -> None:
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
            # There is no await between aiokafka's buffer and the queue, so records that were
            # fetched in one assignment can never reach the worker of the next.
            for partition, records in fetched.items():
                if partition in self.partitions:
                    self._lag.note_fetched(partition, records)
                    self.partitions[partition].worker.offer(records)
            # At least one turn of the loop: a full buffer makes getmany return without a pause.
            await asyncio.sleep(self._pace.pause_after(sum(map(len, fetched.values()))))

    async def _fetch(self) -> Mapping[TopicPartition, Records]:
        fetched: Mapping[TopicPartition, Records] = {}
        try:
            fetched = await self._consumer.getmany(
                timeout_ms=int(_POLL_SECONDS * 1000), max_records=self._batch_records
            )
        except NoOffsetForPartitionError:
            pass  # the partition waits for its position
        except OffsetOutOfRangeError as error:
            for partition, position in error.args[0].items():
                self._assignment.skip_gap(partition, position)
        return fetched

    async def _await_room(self) -> None:
        """Backpressure: full partitions are paused; over the total bound nothing is fetched."""
        while True:
            self._progress.clear()
            self._pause_full_partitions()
            self._assignment.raise_failures()
            in_flight = sum(map(self._in_flight, self.partitions.values()))
            self._has_backpressure = in_flight >= self._in_flight_records or not self._has_room()
            if not self._has_backpressure:
                return
            await self._progress.wait()

    def _in_flight(self, assigned: AssignedPartition) -> int:
        """The records of a partition that a crash would repeat."""
        uncommitted = assigned.uncommitted if self._waits_for_commits else 0
        return assigned.worker.pending + uncommitted

    def _note_progress(self) -> None:
        self._committer.note_progress()
        self._make_room()

    def _make_room(self) -> None:
        self._progress.set()
        if self._any_full:  # at once, because getmany may wait for other partitions
            self._pause_full_partitions()

    def _pause_full_partitions(self) -> None:
        """Pause at two batches, resume at one.

        aiokafka discards the fetched records of a paused partition, so a pause must be rare.
        """
        paused = self._consumer.paused() if self.partitions else set()
        any_full = self._has_backpressure
        for partition, assigned in self.partitions.items():
            if not self._assignment.is_placed(partition):
                continue
            batches = self._in_flight(assigned) / self._batch_records
            is_full = batches > 1 if partition in paused else batches >= 2
            if is_full and partition not in paused:
                self._consumer.pause(partition)
            elif partition in paused and not is_full:
                self._consumer.resume(partition)
            any_full = any_full or is_full
        self._any_full = any_full or bool(paused)
        self._fetch_wait.note(any_full=any_full)

    async def _leave(self) -> None:
        """At shutdown: finish the batches in flight, commit, leave the group."""
        await self._assignment.end_all()
        try:
            async with asyncio.timeout(self._drain_timeout):
                await self._stop_consumer()
        except TimeoutError:
            log.warning("leaving the group took too long", role=self._role)

    async def _stop_consumer(self) -> None:
        try:
            await self._consumer.stop()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # This task was not cancelled: aiokafka has cancelled one of its fetches before its
            # first step, awaits it, and leaves its connections open.
            await self._consumer._client.close()  # noqa: SLF001  # no public way to close them

    def _is_lost(self) -> bool:
        """Whether the group has given this member up: it has no generation any more.

        aiokafka calls one listener for revoked and lost partitions; only its coordinator knows the
        difference.
        """
        coordinator = self._consumer._coordinator  # noqa: SLF001  # no public method
        return getattr(coordinator, "generation", 0) < 0
