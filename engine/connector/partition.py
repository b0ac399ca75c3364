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
from collections.abc import Callable

from aiokafka import ConsumerRecord, TopicPartition

from connectors.errors import EndpointError
from connectors.model import Call, CallFault, CallResult, Failed
from engine.connector.calls import PendingCall, build_call, decode_call
from engine.connector.results import ROLE, ConnectorRole, Results
from engine.kafka.detections import decode_records
from engine.kafka.offsets import MOST_CHARACTERS, FinishedOffsets, Position, write_ranges
from engine.kafka.transactions import TransactionalPublisher
from engine.kafka.workers import Records, exception_of
from engine.process.lifecycle import cancel
from engine.process.metrics import StepTimer

_BATCH_RECORDS = 500
_RANGES_SECONDS = 0.1  # with very many calls that wait, the ranges take a tenth of it


class CallPartition:
    """One assignment of a partition; implements the consumer's PartitionWorker.

    Its calls start in order and finish in any order. With `transactions`, its results and offsets
    are committed in transactions; else the consumer commits.
    """

    def __init__(
        self,
        partition: TopicPartition,
        begin: Position,
        on_progress: Callable[[], None],
        *,
        role: ConnectorRole,
        transactions: TransactionalPublisher | None = None,
    ) -> None:
        self.partition = partition
        self._role = role
        self._on_progress = on_progress
        self._transactions = transactions
        self._offsets = FinishedOffsets(begin)
        self._results = Results(role, self._offsets, self._note_progress, transactions)
        self._step = StepTimer(role.metrics, ROLE)
        self._scheduled: dict[int, Call] = {}  # by offset
        self._ranges, self._next_ranges = "", float("-inf")
        self._queue: deque[ConsumerRecord[bytes, bytes]] = deque()
        self._receiving = 0
        self._arrived = asyncio.Event()
        self._progress = asyncio.Event()
        self._closing = False
        self._is_open = True
        self._tasks = [
            asyncio.create_task(self._receive_all(), name=f"calls of {partition}"),
            asyncio.create_task(self._results.run(), name=f"results of {partition}"),
        ]
        for task in self._tasks:
            task.add_done_callback(lambda _: on_progress())

    @property
    def pending(self) -> int:
        """Records offered that have not finished."""
        return len(self._queue) + self._receiving + self._offsets.unfinished

    @property
    def done_offset(self) -> int | None:
        """The offset to commit: all records before it have finished."""
        return self._offsets.done if self._transactions is None else None

    @property
    def finished_ranges(self) -> str:
        """The finished calls after the offset to commit, a moment ago while calls go on."""
        if self._transactions is not None:
            return ""
        now = time.monotonic()
        if not self._is_open or now >= self._next_ranges:
            self._ranges = write_ranges(self._offsets.ranges(), MOST_CHARACTERS)
            self._next_ranges = now + _RANGES_SECONDS
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

    async def finish(self, deadline: float) -> None:
        """Await tries in flight and publish their results, within `deadline` seconds.

        Waiting calls are dropped. What is not finished then is repeated by the next owner.
        """
        receiving, publishing = self._tasks
        self._close()
        draining = asyncio.create_task(self._drain(receiving, deadline))
        # Results that can no longer be published end the wait.
        await asyncio.wait(
            [draining, publishing], timeout=deadline, return_when=asyncio.FIRST_COMPLETED
        )
        await cancel([draining])
        await self.abandon()

    async def abandon(self) -> None:
        """End at once. The next owner repeats the calls without a result."""
        self._close()
        self._is_open = False
        await cancel(self._tasks)
        self._role.scheduler.forget(self._scheduled.values())
        self._scheduled.clear()
        if self._transactions is not None:
            await self._transactions.close()

    def _close(self) -> None:
        self._closing = True
        self._queue.clear()
        self._arrived.set()

    async def _drain(self, receiving: asyncio.Task[None], deadline: float) -> None:
        await asyncio.wait([receiving])
        await self._role.scheduler.drain(list(self._scheduled.values()), deadline)
        forgotten = len(self._scheduled)  # these calls get no result
        while self._offsets.unfinished > forgotten:
            self._progress.clear()
            await self._progress.wait()

    def _note_progress(self) -> None:
        self._progress.set()
        self._on_progress()

    async def _receive_all(self) -> None:
        while not self._closing:
            await self._arrived.wait()
            while self._queue and not self._closing:
                # A batch is all records that were fetched meanwhile. It makes one look-up in Redis
                # and SQL, so that a slow answer makes batches larger and delays no call.
                self._receiving = min(len(self._queue), _BATCH_RECORDS)
                await self._receive([self._queue.popleft() for _ in range(self._receiving)])
            if not self._closing:
                self._arrived.clear()

    async def _receive(self, records: Records) -> None:
        """Start every call of a batch. Raises permanent errors."""
        with self._step("decode"):
            calls, letters = decode_records(records, decode_call, self._role.limit)
        with self._step("devices"):
            known = await self._role.devices.find([call.device_key for call in calls])
        self._offsets.begin_all([record.offset for record in records])
        self._receiving = 0
        repeated = {r.offset for r in records if self._offsets.was_finished(r.offset)}
        self._offsets.finish_all(repeated)
        for letter in letters:
            if letter.record.offset not in repeated:
                self._results.add(letter)
        for call in calls:
            if call.record.offset not in repeated:
                call.known = known[call.device_key]
                self._start(call)
        self._note_progress()
        self._role.metrics.batch_size.observe(len(records))

    def _start(self, pending: PendingCall) -> None:
        """Schedule one call; its result completes the record."""
        offset, role, message = pending.record.offset, self._role, pending.message
        pending.span = span = role.tracer.begin(
            "proximity.connector", pending.record.headers, _about(pending)
        )

        def on_result(result: CallResult) -> None:
            self._scheduled.pop(offset, None)
            pending.result = result
            span.end(pending.outcome)
            if self._is_open:  # else the partition was lost meanwhile
                self._results.add(pending)

        if message.connector is None:
            on_result(Failed(CallFault.NO_CONNECTOR, "the company has no connector"))
            return
        try:
            endpoint = role.decryptor.decrypt(message.connector)
        except EndpointError as error:
            on_result(Failed(CallFault.SECRET, str(error)))
            return
        call = build_call(pending, endpoint, role.fresh_seconds)
        pending.call = self._scheduled[offset] = call
        role.scheduler.submit(call, on_result)


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
