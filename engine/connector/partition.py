"""The role `connector`: one partition of connector-calls, from its records to their results.

    receive         decode a batch, skip calls that finished before a crash, look up devices
    schedule        pass each call to `connectors.schedule`; from here on calls are independent
    update claims   a failed call gives its claim back, a declined one shortens it, and one with
                    content takes it again if a crash had lost it
    publish         the notification, or a dead letter
    finish          the offset before the first unfinished call may be committed

In this order a crash between two steps repeats calls and loses none. A repeated call has the same
id and changes no claim of another.

Calls finish in any order. The metadata of a committed offset name the finished calls after it, so
that the next owner of the partition does not repeat them. At least once, the consumer commits both
when the results are published; ranges for which the metadata have no room are repeated after a
crash. Exactly once, the transaction that publishes the results commits both; results without room
wait until an earlier call finishes.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter

import structlog
from aiokafka import TopicPartition

from catalog.bounds import chunked
from connectors.errors import EndpointError
from connectors.model import Call, CallFault, CallResult, Content, Declined, Failed
from connectors.schedule import CallScheduler
from engine.connector.calls import EndpointDecryptor, PendingCall, build_call, decode_call
from engine.connector.stores import CallHistoryWriter
from engine.kafka.dead_letters import DeadLetter, DeadLetterLimit, DeadLetterPublisher
from engine.kafka.detections import decode_records
from engine.kafka.offsets import MOST_CHARACTERS, FinishedOffsets, Position
from engine.kafka.topics import Topics
from engine.kafka.tracing import Tracer
from engine.kafka.transactions import TransactionalPublisher
from engine.kafka.workers import PartitionWorker, Records, exception_of
from engine.process.lifecycle import cancel
from engine.process.metrics import Metrics, StepTimer
from engine.redis.claims import Claims
from engine.redis.devices import DeviceLookup

log = structlog.get_logger(__name__)

ROLE = "connector"
_BATCH_RECORDS = 500
_MOST_RESULTS = 1000  # published together
_IDLE_SECONDS = 1.0
_REDIS_PAUSE = 1.0
_RANGES_SECONDS = 1.0  # with very many calls that wait the ranges are much work
_CLAIMS = "claims to update"  # the operation, in the log


@dataclass(frozen=True, kw_only=True)
class ConnectorRole:
    """What the partitions of a process share."""

    topics: Topics
    fresh_seconds: float
    limit: DeadLetterLimit
    scheduler: CallScheduler
    decryptor: EndpointDecryptor
    devices: DeviceLookup
    claims: Claims
    letters: DeadLetterPublisher
    history: CallHistoryWriter
    metrics: Metrics
    tracer: Tracer


class CallPartition(PartitionWorker):
    """One assignment of a partition.

    Its calls start in order and finish in any order. Their results are handled in batches of what
    arrives meanwhile. While Redis is down, notifications are published without a look at their
    claims; what has to change a claim waits. With `transactions`, results and offsets are committed
    here, in transactions; else the consumer commits.
    """

    def __init__(
        self,
        partition: TopicPartition,
        begin: Position,
        on_progress: Callable[[], None],
        transactions: TransactionalPublisher | None = None,
        *,
        role: ConnectorRole,
    ) -> None:
        super().__init__(partition, begin, on_progress, _BATCH_RECORDS)
        self._role = role
        self._transactions = transactions
        letters = role.letters
        self._publisher = replace(letters, publisher=transactions) if transactions else letters
        self._offsets = FinishedOffsets(begin)
        self._committed = begin.offset
        self._step = StepTimer(role.metrics, ROLE)
        self._scheduled: dict[int, Call] = {}  # by offset
        self._next_ranges = float("-inf")
        self._next_update = float("-inf")
        self._unsettled: list[PendingCall] = []  # with claims to change or to confirm
        self._ready: list[PendingCall | DeadLetter] = []  # to be published
        self._has_results = asyncio.Event()
        self._progress = asyncio.Event()
        self._is_open = True
        self._publishing = asyncio.create_task(self._run_results(), name=f"results of {partition}")
        self._publishing.add_done_callback(lambda _: on_progress())

    @property
    def failure(self) -> BaseException | None:
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
        self._pending -= count
        if time.monotonic() >= self._next_ranges:
            self._note_position()
        elif self._transactions is None:
            self._position = self._position._replace(offset=self._offsets.done)
        self._progress.set()
        self.on_progress()

    def _note_position(self) -> None:
        """Note what to commit: the first unfinished call, and the finished ones after it."""
        if self._transactions is None:
            self._position = self._offsets.position(most=MOST_CHARACTERS)
            self._next_ranges = time.monotonic() + _RANGES_SECONDS

    async def _receive(self, records: Records) -> None:
        """Start every call of a batch that did not finish before. Raises permanent errors."""
        self._role.metrics.batch_size.observe(len(records))
        end = records[-1].offset + 1
        records = [each for each in records if not self._offsets.was_finished(each.offset)]
        with self._step("decode"):
            decode = partial(decode_call, topic=self._role.topics.notifications)
            calls, letters = decode_records(records, decode, self._role.limit)
        with self._step("devices"):
            known = await self._role.devices.find([call.device_key for call in calls])
        self._offsets.begin_all([record.offset for record in records], end)
        self._pending += len(records)
        for letter in letters:
            self._add_result(letter)
        for call in calls:
            call.known = known[call.device_key]
            self._start(call)
        self._note_finished(0)

    def _start(self, pending: PendingCall) -> None:
        """Schedule one call; its result completes the record."""
        offset, role, message = pending.record.offset, self._role, pending.message
        ids: dict[str, str | int] = {
            "company": message.company.id,
            "campaign": message.campaign.id,
            "notification": message.id,
        }
        pending.span = span = role.tracer.begin("proximity.connector", pending.record, ids)

        def on_result(result: CallResult) -> None:
            self._scheduled.pop(offset, None)
            pending.result = result
            span.end(pending.outcome)
            if self._is_open:  # else the partition was lost meanwhile
                self._add_result(pending)

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

    def _add_result(self, result: PendingCall | DeadLetter) -> None:
        """Handle the result of a call, or a record that could not be decoded."""
        if isinstance(result, DeadLetter) or result.claim_update() is None:
            self._add_ready([result])
        else:
            self._unsettled.append(result)
        self._has_results.set()

    async def _run_results(self) -> None:
        """Handle results until cancelled. Raises permanent errors."""
        try:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_IDLE_SECONDS):
                        await self._has_results.wait()
                self._has_results.clear()
                await self._settle_claims()
                while batch := self._next_results():
                    await self._finish_results(batch)
                # Calls may have finished before this assignment.
                if self._transactions and self._offsets.done != self._committed:
                    await self._commit([])
        finally:
            self._role.scheduler.note_unpublished(-len(self._ready))

    def _add_ready(self, results: Sequence[PendingCall | DeadLetter]) -> None:
        self._ready += results
        self._role.scheduler.note_unpublished(len(results))

    async def _settle_claims(self) -> None:
        """Settle the claims; while Redis is down, content is published without, and others wait."""
        unsettled, self._unsettled = self._unsettled, []
        for batch in chunked(unsettled, _MOST_RESULTS):  # what a slow Redis has settled stays so
            if time.monotonic() >= self._next_update:
                with self._step("claims"):
                    if not await self._update_claims(batch):
                        self._next_update = time.monotonic() + _REDIS_PAUSE
            if time.monotonic() < self._next_update:
                self._unsettled += [c for c in batch if not isinstance(c.result, Content)]
                batch = [call for call in batch if isinstance(call.result, Content)]
            self._add_ready(batch)

    async def _update_claims(self, batch: Sequence[PendingCall]) -> bool:
        """Change or confirm the claims of calls. One call in Redis. False while Redis is down.

        A crash may have repeated a call whose claim was given back and taken by another detection:
        then there is no second notification within the delay.
        """
        updates = {call: update for call in batch if (update := call.claim_update()) is not None}
        if not updates:
            return True
        errors = self._role.metrics.redis_errors
        try:
            held = await self._role.claims.settle(list(updates.values()))
        except Exception as error:
            if not errors.may_recover(error):
                raise
            errors.failed(error, _CLAIMS)
            return False
        errors.answered(_CLAIMS)
        for call, is_held in zip(updates, held, strict=True):
            if isinstance(call.result, Content) and not is_held:
                call.result = Declined()
        return True

    def _next_results(self) -> list[PendingCall | DeadLetter]:
        """The next results; exactly once, as many as fit into the metadata of one commit."""
        count = _MOST_RESULTS
        if self._transactions is not None:
            self._ready.sort(key=_offset_of)
            while count and not self._fit_one_commit(self._ready[:count]):
                count //= 2
        batch, self._ready = self._ready[:count], self._ready[count:]
        return batch

    def _fit_one_commit(self, results: Sequence[PendingCall | DeadLetter]) -> bool:
        position = self._offsets.position(frozenset(map(_offset_of, results)))
        return len(position.finished_ranges) <= MOST_CHARACTERS

    async def _finish_results(self, batch: Sequence[PendingCall | DeadLetter]) -> None:
        """Publish results and finish their records."""
        offsets = [_offset_of(each) for each in batch]
        calls = [each for each in batch if isinstance(each, PendingCall)]
        try:
            with self._step("publish"):
                letters = [each for each in batch if isinstance(each, DeadLetter)]
                await self._publish(calls, letters)
                if self._transactions is not None:
                    await self._commit(offsets)
        finally:
            self._role.scheduler.note_unpublished(-len(batch))
        self._count(calls)
        self._offsets.finish_all(offsets)
        self._note_finished(len(offsets))

    async def _publish(self, calls: Sequence[PendingCall], letters: list[DeadLetter]) -> None:
        """Publish notifications and dead letters. One with too large a notification has failed."""
        answered = [call.notification() for call in calls if isinstance(call.result, Content)]
        letters += [letter for call in calls if (letter := call.dead_letter())]
        too_large = await self._publisher.publish_or_dead_letter(answered)
        refused = [each.call for each in too_large]
        for call in refused:
            call.result = Failed(CallFault.TOO_LARGE, "the notification is too large for its topic")
        # While Redis is down such a claim is kept for its delay.
        await self._update_claims(refused)
        await self._publisher.publish(letters)

    async def _commit(self, finishing: Sequence[int]) -> None:
        """Commit the transaction in which the messages of these offsets were published."""
        position = self._offsets.position(frozenset(finishing))
        assert self._transactions is not None  # noqa: S101
        await self._transactions.commit(position)
        self._committed = position.offset

    def _count(self, published: Sequence[PendingCall]) -> None:
        """Add results to the metrics, the log, and the history for account holders."""
        role, now = self._role, time.time()
        failed: Counter[tuple[int, str]] = Counter()
        for call in published:
            company = call.message.company.id
            role.metrics.connector_calls.labels(call.outcome).inc()
            role.history.add(company, call.past_call(now))
            if isinstance(call.result, Content):
                role.metrics.notifications.labels(call.result.format).inc()
                if call.message.on != "exit":  # which may be long after its detection
                    role.metrics.latency.observe(max(0.0, now - call.detected_at))
            elif isinstance(call.result, Failed):
                failed[company, call.outcome] += 1
        for (company, reason), count in failed.items():
            log.warning("calls failed", company=company, reason=reason, count=count)


_offset_of = attrgetter("record.offset")
