"""The role recorder, put together."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from engine.app.kafka import role_consumer
from engine.app.role import Parts, Role
from engine.kafka.dead_letters import DeadLetterLimit
from engine.kafka.topics import Topics
from engine.recorder import ROLE, Reader, Recorder
from engine.recording.asides import Asides
from engine.recording.authentications import AuthenticationReader
from engine.recording.deletion import SqliteStore
from engine.recording.detections import DetectionReader
from engine.recording.ledger import Ledger
from engine.recording.notifications import NotificationReader
from engine.recording.partitions import PostgresStore
from engine.recording.places import RecordedPlaces
from engine.recording.postgresql import PostgresLedger
from engine.recording.retention import Retention, Store
from engine.recording.sqlite import SqliteLedger


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
        background={"retention": Retention(store, days=settings.trace_retention, clock=_now).run},
        checks={"partitions_assigned": lambda: consumer.assigned},
        needs={"sql"},
    )


def _readers(parts: Parts, ledger: Ledger) -> Mapping[str, Callable[[], Reader]]:
    settings, metrics = parts.settings, parts.metrics
    topics = Topics.named(settings.topic_prefix)
    asides = Asides(topic=topics.dead_letters, publisher=parts.publisher, metrics=metrics)

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
            clock=_now,
        ),
        topics.notifications: lambda: NotificationReader(
            ledger=ledger,
            asides=asides,
            limit=sent,
            skipped=metrics.recorder_skipped,
            clock=_now,
        ),
        topics.authentications: lambda: AuthenticationReader(
            ledger=ledger, asides=asides, limit=opened, clock=_now
        ),
    }


def _now() -> datetime:
    return datetime.now(UTC)
