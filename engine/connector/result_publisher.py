"""The last steps of calls, for many at once: publish, settle the claims, remember, be done.

In that order, so that a crash at any moment repeats calls and loses none: a repeat has the same
id, and settles no claim that it does not own.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import structlog
from aiokafka import TopicPartition

from connectors.model import Content, Failed
from engine.connector.accumulator import BatchQueue
from engine.connector.call_result import CompletedCall, message_of, settlement
from engine.connector.finished_calls import FinishedCallStore, PartitionProgress
from engine.connector.result_memory import ResultMemory
from engine.kafka.dead_letters import DeadLetter
from engine.kafka.publisher import MessageTooLargeError, Outgoing, Publisher
from engine.kafka.topics import Topics
from engine.process.failures import until_redis_answers
from engine.process.metrics import Metrics
from engine.redis.claim_settlement import ClaimSettler, Settlement

log = structlog.get_logger(__name__)

ROLE = "connector"


class PoolKey(Protocol):
    """The assignment of a partition that a call came with."""

    @property
    def partition(self) -> TopicPartition: ...
    @property
    def done_offset(self) -> int | None: ...
    def finished(self, offsets: Sequence[int]) -> None: ...


class Departure(NamedTuple):
    """A call with its result, or a record that is no call, on its way out."""

    origin: PoolKey
    offset: int
    cause: CompletedCall | DeadLetter

    @property
    def id(self) -> str:
        """By which it is known if it comes again."""
        return self.cause.asked.message.id if isinstance(self.cause, CompletedCall) else ""

    @property
    def size(self) -> int:
        """The characters of content that it holds."""
        result = self.cause.result if isinstance(self.cause, CompletedCall) else None
        return result.size if isinstance(result, Content) else 0

    def message(self, topics: Topics, now: float) -> Outgoing | None:
        """What leaves, if something does."""
        if isinstance(self.cause, DeadLetter):
            return self.cause.outgoing(topics.dead_letters, now)
        return message_of(self.cause, topics, now)


class ResultPublisher:
    """Sees calls off. `run` must run; it raises what no retry mends. `clock` in epoch seconds.

    `on_outcome(answered, now)` is called with each call that has left; it does not wait.
    """

    def __init__(
        self,
        *,
        topics: Topics,
        publisher: Publisher,
        claims: ClaimSettler,
        finished: FinishedCallStore,
        metrics: Metrics,
        room: ResultMemory,
        clock: Callable[[], float] = time.time,
        on_outcome: Callable[[CompletedCall, float], None] = lambda _answered, _now: None,
    ) -> None:
        self._topics = topics
        self._publisher = publisher
        self._claims = claims
        self._finished = finished
        self._metrics = metrics
        self._clock = clock
        self._on_outcome = on_outcome
        self._room = room
        self._waiting_bytes = 0
        self._leaving: BatchQueue[Departure] = BatchQueue()
        self._unsettled: BatchQueue[tuple[Departure, Settlement]] = BatchQueue()
        self._gone: BatchQueue[Departure] = BatchQueue()
        self._seconds = {
            step: metrics.batch_seconds.labels(ROLE, step) for step in ("publish", "claims")
        }

    def add(self, departure: Departure) -> None:
        """See it off soon; its origin is told when it is done."""
        self._take_room(departure.size)
        self._leaving.put([departure])

    def _take_room(self, size: int) -> None:
        self._waiting_bytes += size
        self._room.take(size)

    def _give_room(self, size: int) -> None:
        self._waiting_bytes -= size
        self._room.give(size)

    async def run(self) -> None:
        """Until cancelled. No step waits for a later one: while Redis is away calls still leave."""
        steps = [
            asyncio.create_task(self._leaving.empty(self._leave)),
            asyncio.create_task(self._unsettled.empty(self._settle)),
            asyncio.create_task(self._gone.empty(self._finish)),
        ]
        try:
            done, _ = await asyncio.wait(steps, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in steps:
                task.cancel()
            await asyncio.gather(*steps, return_exceptions=True)
            self._give_room(self._waiting_bytes)

    async def _leave(self, batch: list[Departure]) -> None:
        size = sum(departure.size for departure in batch)
        with self._step("publish"):
            batch = await self._publish(batch)
        self._give_room(size)
        self._count(batch)
        for departure in batch:
            wish = settlement_of(departure)
            if wish is None:
                self._gone.put([departure])
            else:
                self._unsettled.put([(departure, wish)])

    async def _publish(self, batch: Sequence[Departure]) -> list[Departure]:
        """Publish what leaves; the departures as they then are."""
        now = self._clock()
        leaving = {
            number: message
            for number, departure in enumerate(batch)
            if (message := departure.message(self._topics, now)) is not None
        }
        departures = list(batch)
        while leaving:
            try:
                await self._publisher.publish(list(leaving.values()))
                break
            except MessageTooLargeError as error:
                refused = {id(message) for message in error.messages}
                leaving = {n: m for n, m in leaving.items() if id(m) in refused}
                for number, message in leaving.items():
                    departures[number], leaving[number] = self._smaller(
                        departures[number], message, now
                    )
        return departures

    def _smaller(
        self, departure: Departure, message: Outgoing, now: float
    ) -> tuple[Departure, Outgoing]:
        """Instead of a message that its topic does not take: a dead letter, or one without its
        value, or at last without its key: its headers say where the original lies."""
        cause = departure.cause
        size = len(message.value or b"")
        if isinstance(cause, CompletedCall) and isinstance(cause.result, Content):
            departure = departure._replace(cause=cause.unpublishable(size))
            letter = departure.message(self._topics, now)
            assert letter is not None  # noqa: S101  # a failure has one
            return departure, letter
        key = None if message.value is None else message.key
        return departure, message._replace(key=key, value=None)

    async def _settle(self, batch: list[tuple[Departure, Settlement]]) -> None:
        await self._settle_claims([wish for _, wish in batch])
        self._gone.put(departure for departure, _ in batch)

    async def _settle_claims(self, wishes: Sequence[Settlement]) -> None:
        with self._step("claims"):
            await until_redis_answers(
                lambda: self._claims.settle(wishes), self._metrics.redis_errors, "claims to settle"
            )

    async def _finish(self, batch: list[Departure]) -> None:
        by_origin: dict[PoolKey, list[Departure]] = {}
        for departure in batch:
            by_origin.setdefault(departure.origin, []).append(departure)
        await self._finished.note(
            {
                origin.partition: PartitionProgress(
                    {d.offset: d.id for d in gone}, origin.done_offset
                )
                for origin, gone in by_origin.items()
            }
        )
        for origin, gone in by_origin.items():
            origin.finished([departure.offset for departure in gone])

    def _count(self, batch: Sequence[Departure]) -> None:
        metrics, now = self._metrics, self._clock()
        failed: Counter[tuple[int, str]] = Counter()
        for _, _, cause in batch:
            if isinstance(cause, DeadLetter):
                metrics.dead_letters.labels(cause.record.topic, cause.reason).inc()
                continue
            metrics.connector_calls.labels(cause.outcome).inc()
            self._on_outcome(cause, now)
            if isinstance(cause.result, Content):
                metrics.notifications.labels(cause.result.format).inc()
                metrics.latency.observe(max(0.0, now - cause.asked.detected_at))
            elif isinstance(cause.result, Failed):
                metrics.dead_letters.labels(cause.asked.record.topic, cause.outcome).inc()
                failed[cause.asked.message.company.id, cause.outcome] += 1
        for (company, reason), count in failed.items():
            log.warning("calls failed", company=company, reason=reason, count=count)

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self._seconds[name].observe(time.perf_counter() - begin)


def settlement_of(departure: Departure) -> Settlement | None:
    """What becomes of its claim, if it has one to settle."""
    cause = departure.cause
    return settlement(cause) if isinstance(cause, CompletedCall) else None
