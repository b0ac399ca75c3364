"""The steps after a result, for many results at once, for both kinds of delivery."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import structlog
from aiokafka import ConsumerRecord

from connectors.model import Content, Failed
from engine.connector.call_history import CallHistoryWriter
from engine.connector.call_partition import FinishedRecord
from engine.connector.call_result import CompletedCall
from engine.kafka.dead_letters import DeadLetterPublisher
from engine.kafka.exemplars import note_exemplar
from engine.kafka.publisher import Outgoing
from engine.kafka.topics import Topics
from engine.process.cancelling import cancel
from engine.process.metrics import Metrics, StepTimer
from engine.process.retry import retry
from engine.redis.claims import ClaimUpdate, ClaimUpdater
from engine.redis.figure_sums import FigureSums

log = structlog.get_logger(__name__)

ROLE = "connector"
_MOST_BYTES = 64 * 1024 * 1024

Item = TypeVar("Item")


class BatchQueue(Generic[Item]):
    """A queue of items. Items that arrive while a batch is handled form the next batch."""

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._filled = asyncio.Event()

    def put(self, *items: Item) -> None:
        self._items += items
        if items:
            self._filled.set()

    async def run(self, handle: Callable[[list[Item]], Awaitable[None]]) -> None:
        """Handle batch after batch until cancelled. Raises the errors of `handle`."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            items, self._items = self._items, []
            await handle(items)


async def run_steps(*steps: Coroutine[Any, Any, None]) -> None:
    """Run all steps until cancelled. An error of one cancels the others and is raised."""
    tasks = [asyncio.create_task(step) for step in steps]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await cancel(tasks)


class ResultMemory:
    """Bounds the content that waits to be published, over all partitions of a process.

    `on_room` is called when content has been published.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self.on_room: Callable[[], None] = lambda: None

    @property
    def has_room(self) -> bool:
        """Whether more calls may start: not while much content waits for Kafka."""
        return self._bytes < self._most_bytes

    def take(self, size: int) -> None:
        self._bytes += size

    def give_back(self, size: int) -> None:
        self._bytes -= size
        self.on_room()


class CallNotification(NamedTuple):
    """The notification of the call at `number` in its batch."""

    number: int
    message: Outgoing
    record: ConsumerRecord[bytes, bytes]


class ResultPublisher:
    """Publishes results, updates their claims, counts them. `clock` in epoch seconds.

    `sums` is None where notifications are not added up by company and hour.

    Raises permanent errors.
    """

    def __init__(
        self,
        *,
        topics: Topics,
        claims: ClaimUpdater,
        history: CallHistoryWriter,
        sums: FigureSums | None = None,
        metrics: Metrics,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._topics = topics
        self._claims = claims
        self._history = history
        self._sums = sums
        self._metrics = metrics
        self._clock = clock
        self.step = StepTimer(metrics, ROLE)

    async def publish(
        self, publisher: DeadLetterPublisher, batch: Sequence[FinishedRecord]
    ) -> list[FinishedRecord]:
        """Publish notifications and dead letters.

        Returns the batch, in which calls with too large a notification are replaced by failures.
        """
        published = list(batch)
        notifications = [
            CallNotification(number, message, finished.completion.record)
            for number, finished in enumerate(batch)
            if (message := finished.completion.notification(self._topics.notifications))
        ]
        letters = [letter for finished in batch if (letter := finished.completion.dead_letter())]
        for refused in await publisher.publish_or_dead_letter(notifications):
            finished = batch[refused.number]
            assert isinstance(finished.completion, CompletedCall)  # noqa: S101  # it has content
            failed = finished.completion.too_large(len(refused.message.value or b""))
            published[refused.number] = finished._replace(completion=failed)
        await publisher.publish(letters)
        return published

    async def update_claims(self, updates: Sequence[ClaimUpdate]) -> None:
        """Update claims; waits while Redis is down."""
        with self.step("claims"):
            await retry(
                lambda: self._claims.apply(updates), self._metrics.redis_errors, "claims to update"
            )

    def count(self, published: Sequence[FinishedRecord]) -> None:
        """Add results to the metrics, the log, and the history for account holders."""
        metrics, now = self._metrics, self._clock()
        failed: Counter[tuple[int, str]] = Counter()
        sent: Counter[int] = Counter()
        for _, call in published:
            if not isinstance(call, CompletedCall):
                continue
            metrics.connector_calls.labels(call.outcome).inc()
            self._history.add(call.company_id, call.past_call(now))
            if isinstance(call.result, Content):
                metrics.notifications.labels(call.result.format).inc()
                sent[call.company_id] += 1
                self._observe_latency(call, now)
            elif isinstance(call.result, Failed):
                failed[call.company_id, call.outcome] += 1
        for (company, reason), count in failed.items():
            log.warning("calls failed", company=company, reason=reason, count=count)
        if self._sums is not None:
            for company, count in sent.items():
                self._sums.note_notifications(company, count)

    def _observe_latency(self, call: CompletedCall, now: float) -> None:
        latency, seconds = self._metrics.latency, max(0.0, now - call.received.detected_at)
        latency.observe(seconds)
        if latency.wants_exemplar(now):
            note_exemplar(
                latency,
                seconds=seconds,
                notification_id=call.id,
                record=call.record,
                company=call.company_id,
                campaign=call.received.message.campaign.id,
                now=now,
            )
