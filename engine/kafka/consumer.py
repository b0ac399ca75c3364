"""The consumer of one role: fetches records, passes them to workers, commits offsets.

assignment.py handles each partition from its assignment to its end.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import (
    IllegalStateError,
    KafkaError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)

from engine.kafka.assignment import AssignedPartition, Assignment, WorkerFactory
from engine.kafka.client import REQUEST_SECONDS, KafkaCluster, connection_options, stop_consumer
from engine.kafka.offsets import GroupOffsets, PositionStore
from engine.kafka.workers import Records
from engine.process.lifecycle import cancel
from engine.process.metrics import Metrics
from engine.process.settings import Settings

log = structlog.get_logger(__name__)

_POLL_SECONDS, _SHORT_POLL_SECONDS = 0.1, 0.01
_START_SECONDS = 60.0
_LAG_SECONDS = 1.0
# The pause after a fetch of few records: a cycle costs nearly the same for one record as for ten,
# and without a pause a process with a thousand records a second is busy with cycles of one.
_PACE_SECONDS = 0.01
_FEW_RECORDS = 250
_LEAST_LEAVE_SECONDS = 0.5
_LEAVE_SHARE = 0.8  # of the drain timeout, at the end of which the consumer has left


def role_group(settings: Settings, role: str) -> str:
    """The consumer group of a role."""
    return f"{settings.group_prefix}{role}"


def group_consumer(settings: Settings, role: str) -> AIOKafkaConsumer:
    """A member of the role's group; it never commits by itself."""
    session_ms = int(settings.kafka_session_timeout * 1000)
    return AIOKafkaConsumer(
        **connection_options(settings),
        group_id=role_group(settings, role),
        enable_auto_commit=False,
        auto_offset_reset="none",  # every partition gets a position; no jump goes unnoticed
        isolation_level="read_committed",
        fetch_max_wait_ms=int(settings.fetch_wait * 1000),
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=session_ms // 5,
        # A revoked partition finishes its batch first; the group waits for that.
        rebalance_timeout_ms=int((settings.drain_timeout + REQUEST_SECONDS) * 1000),
        partition_assignment_strategy=[StickyPartitionAssignor],
    )


class PartitionedConsumer(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped
    """Consumes `topics` as one member of the role's group until it is stopped.

    `worker_for` makes the worker of one assignment of one partition. `positions`, if given, has the
    positions at which partitions begin, whatever the group has committed; other partitions begin at
    their first record. Nothing is fetched while `has_room()` is false; it is called again when a
    worker makes progress.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        topics: Collection[str],
        role: str,
        worker_for: WorkerFactory,
        metrics: Metrics,
        batch_records: int,
        in_flight_records: int,
        cluster: KafkaCluster | None = None,
        positions: PositionStore | None = None,
        has_room: Callable[[], bool] = lambda: True,
    ) -> None:
        self._consumer = group_consumer(settings, role)
        self._cluster = cluster or KafkaCluster(settings)
        self._topics = topics
        self._role = role
        self._metrics = metrics
        self._batch_records = batch_records
        self._in_flight_records = in_flight_records
        self._drain_timeout = settings.drain_timeout
        self._has_room = has_room
        # With another store of positions the group's commits do not decide what a crash repeats.
        self._waits_for_commits = positions is None
        self._progress = asyncio.Event()
        self._assigned_once = False
        store = positions or GroupOffsets(self._cluster, role_group(settings, role), metrics)
        self._assignment = Assignment(
            self._consumer,
            self._cluster,
            role=role,
            store=store,
            worker_for=worker_for,
            metrics=metrics,
            drain_timeout=settings.drain_timeout,
            on_progress=self._progress.set,
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
        """The age of the newest fetched record of the partition that is the farthest behind.

        0 if every record has been handled; None while the share, a position or an end is not known.
        By the records' own timestamps; `now` in epoch seconds.
        """
        if not self._assigned_once or set(self._consumer.assignment()) - set(self.partitions):
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
        self._consumer.subscribe(list(self._topics), listener=self)
        work: dict[str, Coroutine[Any, Any, Any]] = {
            "stop": stop.wait(),
            "fetching": self._start_and_fetch(),
            "commits": self._assignment.run_commits(),
            "lag": self._measure_lag(),
            "topic ids": self._assignment.watch_topics(),
        }
        tasks = [asyncio.create_task(each, name=f"{self._role} {n}") for n, each in work.items()]
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        finally:
            await cancel(tasks)
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
        await self._assignment.end(revoked)

    async def _start_and_fetch(self) -> None:
        async with asyncio.timeout(_START_SECONDS):
            await self._consumer.start()
        while True:
            self._assignment.raise_failures()
            with_room = [each for each in self.partitions if self._may_fetch(each)]
            if self._is_full() or (self.partitions and not with_room):
                self._progress.clear()
                await self._progress.wait()
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
            is_few = 0 < sum(map(len, fetched.values())) < min(_FEW_RECORDS, self._batch_records)
            await asyncio.sleep(_PACE_SECONDS if is_few else 0.0)

    async def _fetch(self, partitions: list[TopicPartition]) -> Mapping[TopicPartition, Records]:
        # Of others, aiokafka keeps what it has fetched. They may soon have room: then the poll is
        # short.
        poll = _POLL_SECONDS if len(partitions) == len(self.partitions) else _SHORT_POLL_SECONDS
        fetched: Mapping[TopicPartition, Records] = {}
        try:
            fetched = await self._consumer.getmany(
                *partitions, timeout_ms=int(poll * 1000), max_records=self._batch_records
            )
        except NoOffsetForPartitionError:
            pass  # the partition waits for its position
        except OffsetOutOfRangeError as error:
            self._assignment.begin_again(error.args[0])  # the records were deleted
        return fetched

    def _is_full(self) -> bool:
        """Backpressure: whether nothing may be fetched now."""
        in_flight = sum(map(self._in_flight, self.partitions.values()))
        return in_flight >= self._in_flight_records or not self._has_room()

    def _may_fetch(self, partition: TopicPartition) -> bool:
        """Whether a partition has room for another batch, so that it never holds more than two."""
        in_flight = self._in_flight(self.partitions[partition])
        return self._assignment.is_placed(partition) and in_flight <= self._batch_records

    def _in_flight(self, assigned: AssignedPartition) -> int:
        """The records of a partition that a crash would repeat.

        What is done and not committed counts too, so a slow coordinator does not add to them.
        """
        uncommitted = assigned.uncommitted if self._waits_for_commits else 0
        return assigned.worker.pending + uncommitted

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
                    labels = (self._role, partition.topic, str(partition.partition))
                    self._metrics.lag.labels(*labels).set(assigned.lag)
                    if partition in ends:
                        assigned.worker.note_lag(assigned.lag, asked_at)

    async def _leave(self) -> None:
        """Finish, commit and leave the group, within the drain timeout in all."""
        until = asyncio.get_running_loop().time() + _LEAVE_SHARE * self._drain_timeout
        await self._assignment.end(list(self.partitions))
        left = max(_LEAST_LEAVE_SECONDS, until - asyncio.get_running_loop().time())
        if not await stop_consumer(self._consumer, left):
            log.warning("closing took too long", what="consumer", role=self._role)
        await self._cluster.close()
