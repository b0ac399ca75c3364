"""Builds the role recorder."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import structlog

from engine.kafka.dead_letter_limit import DeadLetterLimit
from engine.kafka.dead_letters import DeadLetterPublisher
from engine.kafka.detection_decoder import DetectionDecoder, OwnFormatDecoder, detection_decoders
from engine.kafka.partition_worker import BatchWorker
from engine.kafka.topics import Topics
from engine.process.metrics import Metrics
from engine.process.settings import Settings
from engine.recorder.authentications import AuthenticationReader
from engine.recorder.detections import DetectionReader
from engine.recorder.ledger import Ledger
from engine.recorder.local_days import DayRule
from engine.recorder.notifications import NotificationReader
from engine.recorder.pipeline import ROLE, Recorder, RecordReader
from engine.recorder.postgresql import PostgresLedger
from engine.recorder.postgresql_retention import PostgresRetentionStore
from engine.recorder.recent_counts import RecentCounts
from engine.recorder.recorded_positions import RecordedPositions
from engine.recorder.retention import Retention, RetentionStore
from engine.recorder.sqlite import SqliteLedger
from engine.recorder.sqlite_retention import SqliteRetentionStore
from engine.redis.inspection import redis_time
from engine.redis.recent_detections import BeaconMinute, RecentDetectionStore
from engine.wiring.kafka import role_consumer
from engine.wiring.role import ProcessParts, Role

log = structlog.get_logger(__name__)

_DAY_SECONDS = 86_400.0
# A recorder that is behind writes so many batches of a partition in one transaction, which adds up
# what it has several times of a device or a beacon (docs/decisions/0132).
_BATCHES_AT_ONCE = 4


def build_recorder(parts: ProcessParts) -> Role:
    """The role with its retention task; nothing is started."""
    settings, database = parts.settings, parts.stores.database
    ledger: Ledger
    store: RetentionStore
    if database.dialect == "postgresql":
        ledger = PostgresLedger(database.engine)
        store = PostgresRetentionStore(database.engine)
    else:
        ledger, store = SqliteLedger(database.engine), SqliteRetentionStore(database.engine)
    recent = _recent(parts)
    recorder = recorder_of(parts, ledger, on_recent=recent.note)
    at_once = records_at_once(settings)
    consumer = role_consumer(parts, ROLE)(
        topics=list(recorder.readers),
        worker_for=partial(
            BatchWorker,
            handler_for=recorder.for_partition,
            batch_records=at_once,
        ),
        positions=RecordedPositions(recorder),
        batch_records=at_once,
        in_flight_records=settings.in_flight_records,
    )
    return Role(
        name=ROLE,
        consumer=consumer,
        background={"retention": _retention(parts, store).run, recent.name: recent.run},
        checks={"partitions_assigned": lambda: consumer.assigned},
        needs={"sql"},
    )


def records_at_once(settings: Settings) -> int:
    """The most records of a fetch, and of a transaction: not more than may be in flight."""
    batch, in_flight = settings.batch_records, settings.in_flight_records
    return max(batch, min(_BATCHES_AT_ONCE * batch, in_flight))


def recorder_of(
    parts: ProcessParts, ledger: Ledger, *, on_recent: Callable[[Mapping[BeaconMinute, int]], None]
) -> Recorder:
    """The recorder, without its consumer."""
    settings = parts.settings
    decoders = detection_decoders(settings, registry_errors=parts.metrics.registry_errors)
    return Recorder(
        ledger=ledger,
        readers=_readers(parts, ledger, decoders),
        metrics=parts.metrics,
        deadline=settings.recorder_timeout,
        on_recent=on_recent,
        largest_pieces={topic: each.records_at_once for topic, each in decoders.items()},
    )


def _readers(
    parts: ProcessParts, ledger: Ledger, decoders: Mapping[str, DetectionDecoder]
) -> Mapping[str, RecordReader[Any]]:
    settings, metrics = parts.settings, parts.metrics
    topics = Topics.named(settings.topic_prefix)
    dead_letters = DeadLetterPublisher(
        topic=topics.dead_letters, publisher=parts.publisher, metrics=metrics
    )
    rule = DayRule(settings.max_detection_age, settings.trace_retention * _DAY_SECONDS)

    detections = {
        topic: _detection_reader(settings, metrics, decoder, rule)
        for topic, decoder in decoders.items()
    }
    return {
        **detections,
        topics.notifications: NotificationReader(
            ledger=ledger,
            dead_letters=dead_letters,
            limit=DeadLetterLimit.from_settings(settings),
            skipped=metrics.recorder_skipped,
            rule=rule._replace(max_age=_oldest_delivery(settings)),
        ),
        topics.authentications: AuthenticationReader(
            ledger=ledger,
            dead_letters=dead_letters,
            limit=DeadLetterLimit.from_settings(settings),
            rule=rule,
        ),
    }


def _detection_reader(
    settings: Settings, metrics: Metrics, decoder: DetectionDecoder, rule: DayRule
) -> RecordReader[Any]:
    skipped = metrics.recorder_skipped
    if settings.compiled and isinstance(decoder, OwnFormatDecoder):
        try:
            from engine.recorder.detection_batch import DetectionScanner
            from engine.recorder.detection_columns import ColumnDetectionReader
        except ImportError:
            log.info("not compiled: recording takes longer", module="detection_batch")
        else:
            return ColumnDetectionReader(
                scanner=DetectionScanner(settings.path_loss_exponent),
                decoder=decoder,
                trace=settings.trace,
                skipped=skipped,
                rule=rule,
            )
    return DetectionReader(decoder=decoder, trace=settings.trace, skipped=skipped, rule=rule)


def _recent(parts: ProcessParts) -> RecentCounts:
    settings = parts.settings
    store = RecentDetectionStore(
        redis=parts.stores.redis, prefix=settings.redis_prefix, deadline=settings.redis_timeout
    )
    return RecentCounts(store=store, metrics=parts.metrics)


def _oldest_delivery(settings: Settings) -> float:
    """Seconds from a detection to the end of its notification.

    A detection that fires is fresh, and after its lifetime a notification is not delivered.
    """
    return settings.max_detection_age + settings.notification_lifetime


def _retention(parts: ProcessParts, store: RetentionStore) -> Retention:
    settings, redis = parts.settings, parts.stores.redis

    async def redis_clock() -> datetime:
        async with asyncio.timeout(settings.redis_timeout):
            return datetime.fromtimestamp(await redis_time(redis), UTC)

    return Retention(
        store,
        days=settings.trace_retention,
        max_age=_oldest_delivery(settings),
        clock=lambda: datetime.now(UTC),
        clocks={"redis": redis_clock},
    )
