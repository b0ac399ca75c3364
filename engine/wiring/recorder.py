"""The role recorder, put together."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from engine.kafka.dead_letter_limit import DeadLetterLimit
from engine.kafka.dead_letters import DeadLetterPublisher
from engine.kafka.topics import Topics
from engine.process.settings import Settings
from engine.recorder.authentications import AuthenticationReader
from engine.recorder.detections import DetectionReader
from engine.recorder.ledger import Ledger
from engine.recorder.local_days import DayRule
from engine.recorder.notifications import NotificationReader
from engine.recorder.pipeline import ROLE, Reader, Recorder
from engine.recorder.postgresql import PostgresLedger
from engine.recorder.postgresql_retention import PostgresStore
from engine.recorder.recorded_positions import RecordedPlaces
from engine.recorder.retention import Retention, Store
from engine.recorder.sqlite import SqliteLedger
from engine.recorder.sqlite_retention import SqliteStore
from engine.wiring.kafka import role_consumer
from engine.wiring.role import Parts, Role

_DAY_SECONDS = 86_400.0


def build_recorder(parts: Parts) -> Role:
    """The recorder and the task that keeps its tables in bounds; nothing is started."""
    settings, database = parts.settings, parts.stores.database
    ledger: Ledger
    store: Store
    if database.dialect == "postgresql":
        ledger, store = PostgresLedger(database.engine), PostgresStore(database.engine)
    else:
        ledger, store = SqliteLedger(database.engine), SqliteStore(database.engine)
    recorder = Recorder(
        ledger=ledger,
        readers=_readers(parts, ledger),
        metrics=parts.metrics,
        deadline=settings.recorder_timeout,
    )
    consumer = role_consumer(parts, ROLE)(
        topics=list(recorder.readers),
        handler_for=recorder.for_partition,
        starts=RecordedPlaces(recorder),
        batch_records=settings.batch_records,
        in_flight_records=settings.in_flight_records,
    )
    return Role(
        name=ROLE,
        consumer=consumer,
        background={"retention": _retention(parts, store).run},
        checks={"partitions_assigned": lambda: consumer.assigned},
        needs={"sql"},
    )


def _readers(parts: Parts, ledger: Ledger) -> Mapping[str, Callable[[], Reader]]:
    settings, metrics = parts.settings, parts.metrics
    topics = Topics.named(settings.topic_prefix)
    dead_letters = DeadLetterPublisher(
        topic=topics.dead_letters, publisher=parts.publisher, metrics=metrics
    )

    reach = settings.trace_retention * _DAY_SECONDS
    # One a topic, over all its partitions: a partition with little traffic is soon full of junk.
    sent, opened = (
        DeadLetterLimit(share=settings.dead_letter_share, run=settings.dead_letter_run)
        for _ in range(2)
    )

    return {
        topics.detections: lambda: DetectionReader(
            path_loss_exponent=settings.path_loss_exponent,
            trace=settings.trace,
            skipped=metrics.recorder_skipped,
            rule=DayRule(settings.max_detection_age, reach),
        ),
        topics.notifications: lambda: NotificationReader(
            ledger=ledger,
            dead_letters=dead_letters,
            limit=sent,
            skipped=metrics.recorder_skipped,
            rule=DayRule(_longest_way(settings), reach),
        ),
        topics.authentications: lambda: AuthenticationReader(
            ledger=ledger,
            dead_letters=dead_letters,
            limit=opened,
            rule=DayRule(settings.max_detection_age, reach),
        ),
    }


def _longest_way(settings: Settings) -> float:
    """Seconds from a detection to the end of its notification: one that fires is fresh, and after
    its lifetime nobody delivers it."""
    return settings.max_detection_age + settings.notification_lifetime


def _retention(parts: Parts, store: Store) -> Retention:
    settings, redis = parts.settings, parts.stores.redis

    async def redis_clock() -> datetime:
        async with asyncio.timeout(settings.redis_timeout):
            return _told(await redis.time())

    return Retention(
        store,
        days=settings.trace_retention,
        max_age=_longest_way(settings),
        clock=_now,
        clocks={"redis": redis_clock},
    )


def _told(answer: Any) -> datetime:
    """What TIME says: seconds and microseconds, of each node on a cluster."""
    seconds, microseconds = next(iter(answer.values())) if isinstance(answer, dict) else answer
    return datetime.fromtimestamp(seconds, UTC) + timedelta(microseconds=microseconds)


def _now() -> datetime:
    return datetime.now(UTC)
