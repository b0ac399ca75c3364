"""The role `connector`: one partition of connector-calls, from its records to their results.

    receive         decode a batch, skip calls that finished before a crash, look up devices
    schedule        pass each call to `connectors.schedule`; from here on calls are independent
    update claims   a failed call gives its claim back, a declined one shortens it, and one with
                    content takes it again if a crash had lost it
    publish         the notification, or a dead letter
    finish          the offset before the first unfinished call may be committed

The last three are in engine/connector/results.py. In this order a crash between two steps repeats
calls and loses none. A repeated call has the same id and changes no claim of another.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence

from aiokafka import ConsumerRecord, TopicPartition

from connectors.errors import EndpointError
from connectors.model import CallFault, CallResult, Failed
from connectors.schedule import CallScheduler, ScheduledCall
from engine.connector.calls import EndpointDecryptor, PendingCall, build_call, decode_call
from engine.connector.results import ROLE, Results, ResultTransactions
from engine.kafka.dead_letters import DeadLetterLimit
from engine.kafka.detections import decode_records
from engine.kafka.offsets import MOST_CHARACTERS, FinishedOffsets, Position
from engine.kafka.tracing import Tracer, traceparent_of
from engine.kafka.workers import Records, exception_of
from engine.process.lifecycle import cancel
from engine.process.metrics import Metrics, StepTimer
from engine.process.settings import Settings
from engine.redis.devices import DeviceLookup

_BATCH_RECORDS = 500
_MUCH_SECONDS = 0.001


class CallReceiver:
    """Receives and schedules the calls of all partitions of a process."""

    def __init__(
        self,
        *,
        settings: Settings,
        scheduler: CallScheduler,
        decryptor: EndpointDecryptor,
        devices: DeviceLookup,
        metrics: Metrics,
        tracer: Tracer,
    ) -> None:
        self.scheduler = scheduler
        self._fresh_seconds = settings.max_detection_age
        self._decryptor = decryptor
        self._devices = devices
        self._limit = DeadLetterLimit.from_settings(settings)
        self._metrics = metrics
        self._step = StepTimer(metrics, ROLE)
        self._tracer = tracer

    async def receive(self, partition: "CallPartition", records: Records) -> None:
        """Start every call of a batch. Raises permanent errors."""
        with self._step("decode"):
            calls, letters, _ = decode_records(records, decode_call, self._limit)
        with self._step("devices"):
            known = await self._devices.find([call.device_key for call in calls])
        partition.begin([record.offset for record in records])
        undecodable = [PendingCall(each.record, each) for each in letters]
        repeated = []
        for call in [*undecodable, *calls]:
            call.partition = partition
            if partition.offsets.was_finished(call.record.offset):
                repeated.append(call.record.offset)
            elif call.letter is not None:
                partition.complete(call)
            else:
                call.known = known[call.device_key]
                self._schedule(call)
        partition.finish_offsets(repeated)
        self._metrics.batch_size.observe(len(records))

    def _schedule(self, call: PendingCall) -> None:
        """Schedule one call; its result completes the record."""
        offset, partition = call.record.offset, call.partition
        call.span = span = self._tracer.begin(
            "proximity.connector", call.record.headers, _about(call)
        )

        def on_result(result: CallResult) -> None:
            partition.scheduled.pop(offset, None)
            call.result = result
            span.end(call.outcome)
            partition.complete(call)

        endpoint = call.message.connector
        if endpoint is None:
            on_result(Failed(CallFault.NO_CONNECTOR, "the company has no connector"))
            return
        try:
            decrypted = self._decryptor.decrypt(endpoint)
        except EndpointError as error:
            on_result(Failed(CallFault.SECRET, str(error)))
            return
        made = build_call(call, decrypted, self._fresh_seconds)
        call.scheduled = self.scheduler.submit(made, on_result, traceparent_of(span.headers))
        if not call.scheduled.ended:
            partition.scheduled[offset] = call


def _about(call: PendingCall) -> dict[str, str | int]:
    """The attributes of a call's span: ids of the catalog, and no personal data."""
    return {
        "messaging.system": "kafka",
        "messaging.operation.type": "process",
        "messaging.destination.name": call.record.topic,
        "messaging.destination.partition.id": str(call.record.partition),
        "messaging.kafka.offset": call.record.offset,
        "proximity.company": call.message.company.id,
        "proximity.campaign": call.message.campaign.id,
        "proximity.notification": call.message.id,
    }


class CallPartition:
    """One assignment of a partition; implements the consumer's PartitionWorker.

    Its calls start in order and finish in any order. With `transactions`, `results` belong to this
    partition alone and commit its offsets; else the consumer commits.
    """

    def __init__(
        self,
        partition: TopicPartition,
        begin: Position,
        on_progress: Callable[[], None],
        *,
        receiver: CallReceiver,
        results: Results,
        transactions: ResultTransactions | None = None,
    ) -> None:
        self.partition = partition
        self.scheduled: dict[int, PendingCall] = {}
        self.offsets = FinishedOffsets(begin) if transactions is None else transactions.offsets
        self._ranges, self._next_ranges = "", float("-inf")
        self._is_open = True
        self._receiver = receiver
        self._results = results
        self._on_progress = on_progress
        self._queue: deque[ConsumerRecord[bytes, bytes]] = deque()
        self._receiving = 0
        self._arrived = asyncio.Event()
        self._progress = asyncio.Event()
        self._closing = False
        self._transactions = transactions
        self._tasks = [asyncio.create_task(self._run(), name=f"calls of {partition}")]
        if transactions is not None:
            self._tasks.append(asyncio.create_task(results.run(), name=f"results of {partition}"))
        for task in self._tasks:
            task.add_done_callback(lambda _: on_progress())

    @property
    def pending(self) -> int:
        """Records offered that have not finished."""
        return len(self._queue) + self._receiving + self.offsets.unfinished

    @property
    def done_offset(self) -> int | None:
        """The offset to commit: all records before it have finished."""
        return self.offsets.done if self._transactions is None else None

    @property
    def finished_ranges(self) -> str:
        """The finished calls after the offset to commit, a moment ago while calls go on."""
        if self._transactions is not None:
            return ""
        now = time.monotonic()
        if not self._is_open or now >= self._next_ranges:
            self._ranges = self.offsets.ranges().text(MOST_CHARACTERS)
            # With very many calls that wait this is much work: it may take a tenth of the time.
            took = time.monotonic() - now
            self._next_ranges = now + 10 * took if took > _MUCH_SECONDS else now
        return self._ranges

    @property
    def failure(self) -> BaseException | None:
        """The error that stopped this partition, or None."""
        return next((error for task in self._tasks if (error := exception_of(task))), None)

    def offer(self, records: Records) -> None:
        """Queue fetched records."""
        self._queue.extend(records)
        self._arrived.set()

    def note_lag(self, _lag: int, _asked_at: float) -> None:
        """Nothing depends on the time."""

    def begin(self, offsets: Sequence[int]) -> None:
        """Note that records with these offsets were received."""
        self.offsets.begin_all(offsets)
        self._receiving -= len(offsets)

    def complete(self, call: PendingCall) -> None:
        """Pass a record's result on, unless the partition was lost meanwhile."""
        if self._is_open:
            self._results.add(call)

    def finish_offsets(self, offsets: Sequence[int]) -> None:
        """Note that all consequences of these records are done."""
        for offset in offsets:
            self.offsets.finish(offset)
        self._progress.set()
        self._on_progress()

    async def finish(self, deadline: float) -> None:
        """Await tries in flight and publish their results, within `deadline` seconds.

        Waiting calls are dropped. What is not finished then is repeated by the next owner.
        """
        self._closing = True
        self._queue.clear()
        self._arrived.set()
        draining = asyncio.create_task(self._drain(deadline))
        # Results that can no longer be published end the wait.
        await asyncio.wait(
            [draining, *self._tasks[1:]], timeout=deadline, return_when=asyncio.FIRST_COMPLETED
        )
        await cancel([draining])
        await self.abandon()

    async def abandon(self) -> None:
        """End at once. The next owner repeats the calls without a result."""
        self._closing = True
        self._is_open = False
        await cancel(self._tasks)
        self._receiver.scheduler.forget(self._scheduled())
        self.scheduled.clear()
        if self._transactions is not None:
            await self._transactions.close()

    def _scheduled(self) -> list[ScheduledCall]:
        return [call.scheduled for call in self.scheduled.values() if call.scheduled is not None]

    async def _drain(self, deadline: float) -> None:
        await asyncio.wait(self._tasks[:1])
        await self._receiver.scheduler.drain(self._scheduled(), deadline)
        forgotten = len(self.scheduled)  # these calls get no result
        while self.offsets.unfinished > forgotten:
            self._progress.clear()
            await self._progress.wait()

    async def _run(self) -> None:
        while not self._closing:
            await self._arrived.wait()
            while self._queue and not self._closing:
                # A batch is all records that were fetched meanwhile. It makes one look-up in Redis
                # and SQL, so that a slow answer makes batches larger and delays no call.
                size = min(len(self._queue), _BATCH_RECORDS)
                self._receiving = size
                await self._receiver.receive(self, [self._queue.popleft() for _ in range(size)])
            if not self._closing:
                self._arrived.clear()
