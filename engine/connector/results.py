"""The consequences of results: claims, messages, committed offsets, metrics, call history.

Calls finish in any order. The metadata of a committed offset name the finished calls after it, so
that the next owner of the partition does not repeat them. At least once, the consumer commits both
when the results are published, and all partitions of a process share the path; ranges for which the
metadata have no room are repeated after a crash. Exactly once, the transaction that publishes the
results commits both; results without room wait until an earlier call finishes.
"""

import asyncio
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import structlog
from aiokafka import ConsumerRecord

from connectors.model import CallFault, Content, Declined, Failed
from engine.connector.calls import PendingCall
from engine.connector.stores import CallHistoryWriter
from engine.kafka.dead_letters import DeadLetterPublisher
from engine.kafka.offsets import MOST_CHARACTERS, FinishedOffsets, Position
from engine.kafka.producer import Outgoing
from engine.kafka.topics import Topics
from engine.kafka.tracing import note_exemplar
from engine.kafka.transactions import TransactionalPublisher
from engine.process.lifecycle import cancel
from engine.process.metrics import Metrics, StepTimer
from engine.redis.claims import ClaimUpdater
from engine.redis.figures import FigureSums

log = structlog.get_logger(__name__)

ROLE = "connector"
_MOST_RESULTS = 1000  # published together
_MOST_WAITING = 4000  # to be published; then no call starts
_IDLE_SECONDS = 1.0
_REDIS_PAUSE = 1.0
_CLAIMS = "claims to update"  # the operation, in the log


class WaitingResults:
    """Bounds the results that wait to be published, over all partitions of a process.

    `on_room` is called when some have been published.
    """

    def __init__(self) -> None:
        self._count = 0
        self.on_room: Callable[[], None] = lambda: None

    @property
    def has_room(self) -> bool:
        """Whether more calls may start: not while many results wait for Kafka."""
        return self._count < _MOST_WAITING

    def add(self, count: int) -> None:
        """Count results, or, below 0, those that were published."""
        self._count += count
        if count < 0:
            self.on_room()


class ResultParts(NamedTuple):
    """What all results of a process share. `sums` is None where no figures are added up."""

    topics: Topics
    claims: ClaimUpdater
    history: CallHistoryWriter
    waiting: WaitingResults
    metrics: Metrics
    sums: FigureSums | None = None
    clock: Callable[[], float] = time.time


class _Notification(NamedTuple):
    """A message with its cause, for DeadLetterPublisher."""

    call: PendingCall
    message: Outgoing
    record: ConsumerRecord[bytes, bytes]


class ResultTransactions:
    """Commits the results of one partition with its offsets, in the publisher's transaction."""

    def __init__(self, *, publisher: TransactionalPublisher, begin: Position) -> None:
        self.close = publisher.close
        self._publisher = publisher
        self.offsets = FinishedOffsets(begin)
        self._committed: int | None = None

    def fitting(self, calls: list[PendingCall]) -> int:
        """How many calls, from the first in the order of offsets, fit into one commit."""
        calls.sort(key=lambda call: int(call.record.offset))
        return self.fitting_offsets([call.record.offset for call in calls[:_MOST_RESULTS]])

    def fitting_offsets(self, offsets: list[int]) -> int:
        """How many of the offsets, from the first on, fit into the metadata of one commit."""

        def size(count: int) -> int:
            return len(self.offsets.ranges(frozenset(offsets[:count])).text())

        if size(len(offsets)) <= MOST_CHARACTERS:
            return len(offsets)
        return bisect_right(range(1, len(offsets)), MOST_CHARACTERS, key=size)

    async def commit(self, calls: Sequence[PendingCall]) -> None:
        """Commit the transaction in which the calls' messages were published."""
        position = self.offsets.position(frozenset(call.record.offset for call in calls))
        await self._publisher.commit(position)
        self._committed = position.offset

    async def commit_repeated(self) -> None:
        """Commit the offsets of calls that were finished before this assignment."""
        if self.offsets.done not in (None, self._committed):
            await self.commit([])


class Results:
    """Handles results, in batches of what arrives meanwhile. `run` must be running.

    While Redis is down, notifications are published without a look at their claims; what has to
    change a claim waits. `run` raises permanent errors. With `transactions`, the results are those
    of one partition, and are committed here.
    """

    def __init__(
        self,
        *,
        parts: ResultParts,
        publisher: DeadLetterPublisher,
        transactions: ResultTransactions | None = None,
    ) -> None:
        self._parts = parts
        self._publisher = publisher
        self._transactions = transactions
        self._step = StepTimer(parts.metrics, ROLE)
        self._waiting = 0
        self._redis_down = False
        self._for_claims: list[PendingCall] = []
        self._claims_wanted = asyncio.Event()
        self._for_publish: list[PendingCall] = []
        self._publish_wanted = asyncio.Event()

    def add(self, call: PendingCall) -> None:
        """Handle the result of a call."""
        is_content = isinstance(call.result, Content)
        if call.claim_update() is None or (is_content and self._redis_down):
            self._publish_next([call])
        else:
            self._for_claims.append(call)
            self._claims_wanted.set()

    async def run(self) -> None:
        """Handle results until cancelled."""
        tasks = [asyncio.create_task(self._settle_claims()), asyncio.create_task(self._publish())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await cancel(tasks)
            self._note_waiting(-self._waiting)

    def _note_waiting(self, count: int) -> None:
        self._waiting += count
        self._parts.waiting.add(count)

    def _publish_next(self, calls: Sequence[PendingCall]) -> None:
        self._for_publish += calls
        self._note_waiting(len(calls))
        self._publish_wanted.set()

    async def _settle_claims(self) -> None:
        while True:
            await self._claims_wanted.wait()
            self._claims_wanted.clear()
            batch, self._for_claims = self._for_claims, []
            try:
                with self._step("claims"):
                    await self._update_claims(batch)
            except Exception as error:  # temporary errors are retried, others are raised
                if not self._parts.metrics.redis_errors.may_recover(error):
                    raise
                self._parts.metrics.redis_errors.failed(error, _CLAIMS)
                self._redis_down = True
                self._publish_next([call for call in batch if isinstance(call.result, Content)])
                left = [call for call in batch if not isinstance(call.result, Content)]
                self._for_claims = left + self._for_claims
                self._claims_wanted.set()
                await asyncio.sleep(_REDIS_PAUSE)
                continue
            self._redis_down = False
            self._publish_next(batch)

    async def _update_claims(self, batch: Sequence[PendingCall]) -> None:
        """Change or confirm the claims of calls. One call in Redis.

        A crash may have repeated a call whose claim was given back and taken by another detection:
        then there is no second notification within the delay.
        """
        updates = {call: update for call in batch if (update := call.claim_update()) is not None}
        if not updates:
            return
        held = await self._parts.claims.settle(list(updates.values()))
        self._parts.metrics.redis_errors.answered(_CLAIMS)
        for call, is_held in zip(updates, held, strict=True):
            if isinstance(call.result, Content) and not is_held:
                call.result = Declined()

    async def _publish(self) -> None:
        """Publish results and finish their records."""
        waiting: list[PendingCall] = []
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_IDLE_SECONDS):
                    await self._publish_wanted.wait()
            self._publish_wanted.clear()
            waiting += self._for_publish
            self._for_publish = []
            while waiting and (count := self._fitting(waiting)):
                batch = waiting[: min(count, _MOST_RESULTS)]
                with self._step("publish"):
                    await self._publish_batch(batch)
                    if self._transactions is not None:
                        await self._transactions.commit(batch)
                del waiting[: len(batch)]
                self._note_waiting(-len(batch))
                self._count(batch)
                _finish_offsets(batch)
            if self._transactions is not None:
                await self._transactions.commit_repeated()

    def _fitting(self, waiting: list[PendingCall]) -> int:
        return len(waiting) if self._transactions is None else self._transactions.fitting(waiting)

    async def _publish_batch(self, batch: Sequence[PendingCall]) -> None:
        """Publish notifications and dead letters. One with too large a notification has failed."""
        notifications = [
            _Notification(call, message, call.record)
            for call in batch
            if (message := call.notification(self._parts.topics.notifications))
        ]
        letters = [letter for call in batch if (letter := call.dead_letter())]
        refused = await self._publisher.publish_or_dead_letter(notifications)
        for call, message, _ in refused:
            detail = f"the notification would have {len(message.value or b'')} bytes"
            call.result = Failed(CallFault.TOO_LARGE, detail)
        if refused:  # a failure, which gives its claim back
            await self._give_back([each.call for each in refused])
        await self._publisher.publish(letters)

    async def _give_back(self, calls: list[PendingCall]) -> None:
        try:
            await self._update_claims(calls)
        except Exception as error:  # temporary: such a claim is kept for its delay
            if not self._parts.metrics.redis_errors.may_recover(error):
                raise
            self._parts.metrics.redis_errors.failed(error, _CLAIMS)

    def _count(self, published: Sequence[PendingCall]) -> None:
        """Add results to the metrics, the log, and the history for account holders."""
        metrics, now = self._parts.metrics, self._parts.clock()
        failed: Counter[tuple[int, str]] = Counter()
        sent: Counter[int] = Counter()
        for call in published:
            if call.letter is not None:
                continue
            company = call.message.company.id
            metrics.connector_calls.labels(call.outcome).inc()
            self._parts.history.add(company, call.past_call(now))
            if isinstance(call.result, Content):
                metrics.notifications.labels(call.result.format).inc()
                sent[company] += 1
                self._observe_latency(call, now)
            elif isinstance(call.result, Failed):
                failed[company, call.outcome] += 1
        for (company, reason), count in failed.items():
            log.warning("calls failed", company=company, reason=reason, count=count)
        if self._parts.sums is not None:
            for company, count in sent.items():
                self._parts.sums.note_notifications(company, count)

    def _observe_latency(self, call: PendingCall, now: float) -> None:
        latency, seconds = self._parts.metrics.latency, max(0.0, now - call.detected_at)
        latency.observe(seconds)
        if latency.wants_exemplar(now):
            note_exemplar(
                latency,
                seconds=seconds,
                notification_id=call.id,
                record=call.record,
                company=call.message.company.id,
                campaign=call.message.campaign.id,
                now=now,
            )


def _finish_offsets(batch: Sequence[PendingCall]) -> None:
    by_partition: dict[object, list[PendingCall]] = {}
    for call in batch:
        by_partition.setdefault(call.partition, []).append(call)
    for calls in by_partition.values():
        calls[0].partition.finish_offsets([call.record.offset for call in calls])
