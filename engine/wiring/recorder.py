"""Builds the role recorder."""

from collections.abc import Callable, Mapping
from functools import partial

from engine.formats.decoders import detection_decoders
from engine.kafka.consumer import PartitionedConsumer
from engine.kafka.dead_letters import DeadLetterLimit
from engine.kafka.topics import Topics
from engine.process.settings import Settings
from engine.recorder.days import DayRule
from engine.recorder.dialects import PostgresLedger, SqliteLedger
from engine.recorder.ledger import Ledger
from engine.recorder.pipeline import ROLE, PartitionRecorder, Recorder
from engine.recorder.readers import (
    AuthenticationReader,
    DetectionReader,
    NotificationReader,
    PresenceReader,
    RecordReader,
)
from engine.recorder.retention import Retention
from engine.redis.figures import BeaconMinute, RecentCounts
from engine.wiring.parts import ProcessParts, Role
from rules.schedule import DAY

TRANSACTION_SECONDS = 30.0


def build_recorder(parts: ProcessParts) -> Role:
    """The role with its retention task; nothing is started."""
    settings, database = parts.settings, parts.stores.database
    ledger: Ledger = (PostgresLedger if database.dialect == "postgresql" else SqliteLedger)(
        database.engine
    )
    recent = RecentCounts(metrics=parts.metrics, **parts.stores.redis_options)
    recorder = recorder_of(parts, ledger, on_recent=recent.note)
    # A recorder that is behind writes all that may be in flight in one transaction, which adds up
    # what it has several times of a device or a beacon.
    at_once = 4 * settings.batch_records
    consumer = PartitionedConsumer(
        settings=settings,
        role=ROLE,
        metrics=parts.metrics,
        topics=list(recorder.readers),
        worker_for=partial(PartitionRecorder, recorder, batch_records=at_once),
        positions=recorder.load,
        batch_records=at_once,
        in_flight_records=at_once,
    )
    retention = Retention(
        ledger=ledger,
        days=settings.trace_retention,
        max_age=_oldest_delivery(settings),
        clocks=parts.clocks,
    )
    return Role(
        name=ROLE,
        consumer=consumer,
        background={"retention": retention.run, "recent detections": recent.run},
        needs={"sql"},
    )


def recorder_of(
    parts: ProcessParts, ledger: Ledger, *, on_recent: Callable[[Mapping[BeaconMinute, int]], None]
) -> Recorder:
    """The recorder, without its consumer."""
    settings, metrics = parts.settings, parts.metrics
    decoders = detection_decoders(settings, registry_errors=metrics.registry_errors)
    rule = DayRule(settings.max_detection_age, settings.trace_retention * DAY)
    topics = Topics.of(settings.topic_prefix)
    readers: dict[str, RecordReader] = {
        topic: DetectionReader(
            decoder=decoder,
            trace=settings.trace,
            skipped=metrics.recorder_skipped,
            exits=metrics.records_skipped.labels(ROLE, "geofence_exit"),
            rule=rule,
        )
        for topic, decoder in decoders.items()
    }
    dead_letters = parts.dead_letters()
    late = rule._replace(max_age=_oldest_delivery(settings))
    for topic, reader, of_topic in (
        (topics.notifications, NotificationReader, late),
        (topics.authentications, AuthenticationReader, rule),
        (topics.presence, PresenceReader, rule),
    ):
        readers[topic] = reader(
            dead_letters=dead_letters,
            limit=DeadLetterLimit(settings.dead_letter_share),
            skipped=metrics.recorder_skipped,
            rule=of_topic,
        )
    return Recorder(
        ledger=ledger,
        readers=readers,
        metrics=metrics,
        deadline=TRANSACTION_SECONDS,
        on_recent=on_recent,
    )


def _oldest_delivery(settings: Settings) -> float:
    """Seconds from a detection to the end of its notification.

    A detection that fires is fresh, and after its lifetime a notification is not delivered.
    """
    return settings.max_detection_age + settings.notification_lifetime
