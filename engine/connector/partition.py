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
from collections.abc import Callable

from aiokafka import TopicPartition

from connectors.errors import EndpointError
from connectors.model import Call, CallFault, CallResult, Failed
from engine.connector.calls import PendingCall, build_call, decode_call
from engine.connector.results import ROLE, ConnectorRole, Results
from engine.kafka.detections import decode_records
from engine.kafka.offsets import MOST_CHARACTERS, FinishedOffsets, Position, write_ranges
from engine.kafka.transactions import TransactionalPublisher
from engine.kafka.workers import QueueWorker, Records, exception_of
from engine.process.lifecycle import cancel
from engine.process.metrics import StepTimer

_BATCH_RECORDS = 500


class CallPartition(QueueWorker):
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
        super().__init__(partition, on_progress, _BATCH_RECORDS)
        self._role = role
        self._transactions = transactions
        self._offsets = FinishedOffsets(begin)
        self._results = Results(role, self._offsets, self._note_finished, transactions)
        self._step = StepTimer(role.metrics, ROLE)
        self._scheduled: dict[int, Call] = {}  # by offset
        self._next_ranges = float("-inf")
        self._progress = asyncio.Event()
        self._is_open = True
        self._publishing = asyncio.create_task(self._results.run(), name=f"results of {partition}")
        self._publishing.add_done_callback(lambda _: on_progress())

    @property
    def failure(self) -> BaseException | None:
        """The error that stopped this partition, or None."""
        return super().failure or exception_of(self._publishing)

    async def handle(self, batch: Records) -> None:
        """Start the calls. They are pending until their results are published."""
        for start in range(0, len(batch), _BATCH_RECORDS):
            if not self._closing:
                # It makes one look-up in Redis and SQL, so that a slow answer makes batches larger
                # and delays no call.
                await self._receive(batch[start : start + _BATCH_RECORDS])

    async def finish(self, deadline: float) -> None:
        """Await tries in flight and publish their results, within `deadline` seconds.

        Waiting calls are dropped. What is not finished then is repeated by the next owner.
        """
        self._close()
        draining = asyncio.create_task(self._drain(deadline))
        # Results that can no longer be published end the wait.
        await asyncio.wait(
            [draining, self._publishing], timeout=deadline, return_when=asyncio.FIRST_COMPLETED
        )
        await cancel([draining])
        await self.abandon()

    async def abandon(self) -> None:
        """End at once. The next owner repeats the calls without a result."""
        self._is_open = False
        await super().abandon()
        await cancel([self._publishing])
        self._role.scheduler.forget(self._scheduled.values())
        self._scheduled.clear()
        self._note_position()
        if self._transactions is not None:
            await self._transactions.close()

    async def _drain(self, deadline: float) -> None:
        await asyncio.wait([self._task])
        await self._role.scheduler.drain(list(self._scheduled.values()), deadline)
        forgotten = len(self._scheduled)  # these calls get no result
        while self._offsets.unfinished > forgotten:
            self._progress.clear()
            await self._progress.wait()

    def _note_finished(self, count: int) -> None:
        self.pending -= count
        if time.monotonic() >= self._next_ranges:
            self._note_position()
        elif self._transactions is None:
            self.done_offset = self._offsets.done
        self._progress.set()
        self._on_progress()

    def _note_position(self) -> None:
        """Note what to commit: the first unfinished call, and the finished ones after it."""
        if self._transactions is None:
            begin = time.monotonic()
            self.done_offset = self._offsets.done
            self.finished_ranges = write_ranges(self._offsets.ranges(), MOST_CHARACTERS)
            # With very many calls that wait this is much work: it may take 3% of the time.
            self._next_ranges = begin + 30 * (time.monotonic() - begin)

    async def _receive(self, records: Records) -> None:
        """Start every call of a batch. Raises permanent errors."""
        with self._step("decode"):
            calls, letters = decode_records(records, decode_call, self._role.limit)
        with self._step("devices"):
            known = await self._role.devices.find([call.device_key for call in calls])
        self._offsets.begin_all([record.offset for record in records])
        self.pending += len(records)
        repeated = {r.offset for r in records if self._offsets.was_finished(r.offset)}
        self._offsets.finish_all(repeated)
        for letter in letters:
            if letter.record.offset not in repeated:
                self._results.add(letter)
        for call in calls:
            if call.record.offset not in repeated:
                call.known = known[call.device_key]
                self._start(call)
        self._note_finished(len(repeated))
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
