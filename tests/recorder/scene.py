"""A small catalog on a fresh database, recorders over it, and records for them."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, time, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from aiokafka import ConsumerRecord, TopicPartition
from sqlalchemy import func, select

from catalog.database import Database
from catalog.models import Base, Device, Statistic, VisitStatistic
from engine.kafka.dead_letters import DeadLetterPublisher
from engine.kafka.messages import format_instant
from engine.kafka.offsets import Position
from engine.kafka.producer import Outgoing
from engine.kafka.tracing import Tracer
from engine.kafka.workers import PartitionRestartError, Records
from engine.process.metrics import Metrics
from engine.process.settings_sources import load_settings
from engine.recorder.dialects import PostgresLedger, SqliteLedger
from engine.recorder.ledger import Ledger
from engine.recorder.pipeline import PartitionRecorder, Recorder
from engine.recorder.readers import Trace
from engine.wiring.recorder import recorder_of
from tests.catalog.records import NOON
from tests.catalog.records import Records as CatalogRecords
from tests.kafka.records import record as kafka_record
from tests.servers.schema import migrated

# Yesterday: records of a past that is too long ago for a recorder to be late count for no day.
NOW = datetime.combine(datetime.now(UTC).date() - timedelta(days=1), time(10, 30), UTC)
DETECTIONS, NOTIFICATIONS, AUTHENTICATIONS = "detections", "notifications", "authentications"
PRESENCE = "presence"


class Letters:
    """Collects dead letters in place of the brokers."""

    def __init__(self) -> None:
        self.reasons: list[bytes] = []

    async def publish(self, messages: list[Outgoing]) -> None:
        self.reasons += [dict(message.headers)["reason"] for message in messages]


def recorder_over(
    ledger: Any,
    metrics: Metrics,
    letters: Any = None,
    *,
    trace: Trace = "all",
    on_recent: Callable[[Any], None] = lambda _: None,
) -> Recorder:
    """A new recorder, as in another process."""
    publisher: Any = letters or Letters()
    letters = DeadLetterPublisher(topic="dead", publisher=publisher, metrics=metrics)
    parts: Any = SimpleNamespace(
        settings=load_settings(None, topic_prefix="", trace=trace, dead_letter_share=1),
        metrics=metrics,
        tracer=Tracer(),
        dead_letters=lambda: letters,
    )
    return recorder_of(parts, ledger, on_recent=on_recent)


def recorder_of_partition(
    recorder: Recorder, partition: TopicPartition, begin: Position
) -> PartitionRecorder:
    return PartitionRecorder(recorder, partition, begin, lambda: None, batch_records=1000)


class ConsumedPartition:
    """A partition of a recorder as the consumer runs it: where it begins is in SQL."""

    def __init__(self, recorder: Recorder, partition: TopicPartition) -> None:
        self._recorder = recorder
        self._partition = partition
        self._assigned: PartitionRecorder | None = None
        self._begin = Position(0)

    async def handle(self, records: Records) -> None:
        while True:
            if self._assigned is None:
                await self._assign()
                continue
            try:
                await self._assigned.handle(
                    [record for record in records if record.offset >= self._begin.offset]
                )
            except PartitionRestartError:
                await self._assigned.abandon()
                self._assigned = None
            else:
                return

    async def _assign(self) -> None:
        place = self._partition
        known = (await self._recorder.load([place])).get(place)
        self._begin = known or Position(0)
        self._assigned = recorder_of_partition(self._recorder, place, self._begin)


class Scene:
    """A company with a venue, a place of each kind, a campaign and an application, and another
    company; recorders over one ledger, and records of these.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.ledger = ledger_on(database)
        self.letters = Letters()
        self.metrics = Metrics()
        self.records = records = CatalogRecords()
        self.company, self.other = records.company(), records.company()
        self.venue = venue = records.venue(self.company, time_zone="Europe/Paris")
        self.beacon, self.geofence = records.beacon(venue), records.geofence(venue)
        self.nfc, self.qrcode = records.scan_tag(venue, "nfc"), records.scan_tag(venue)
        self.campaign = records.campaign(venue)
        self.application = records.application(self.company, api_key="key-1")

    async def save(self) -> None:
        """Write the catalog, and a test device."""
        kinds: dict[str, Any] = {"company": self.company, "udid": "of-the-team", "test": True}
        tested = Device(**kinds, create_on=NOON, update_on=NOON)
        places = self.beacon, self.geofence, self.nfc, self.qrcode
        async with self.database.write.begin() as session:
            session.add_all([self.other, *places, self.campaign, self.application, tested])

    def recorder(
        self, topic: str, *, trace: Trace = "all", ledger: Ledger | None = None, **more: Any
    ) -> Any:
        """A new recorder, as in another process."""
        ledger = ledger or self.ledger
        recorder = recorder_over(ledger, self.metrics, self.letters, trace=trace, **more)
        return ConsumedPartition(recorder, TopicPartition(topic, 0))

    def fields(self) -> dict[str, dict[str, Any]]:
        """The fields of a detection at the place of each kind; a position is in the geofence."""
        beacon, key = self.beacon, {"api_key": self.application.api_key}
        circle = {"latitude": self.geofence.latitude, "longitude": self.geofence.longitude}
        triple = {"uuid": beacon.uuid, "major": beacon.major, "minor": beacon.minor}
        return {
            "beacon": {**triple, "proximity": "near"},
            "geofence": {"geofence": {"id": self.geofence.id, "transition": "enter"}},
            "position": {"position": {**circle, "accuracy": 20}, **key},
            "nfc": {"tag": {"kind": "nfc", "value": self.nfc.value}, **key},
            "qrcode": {"tag": {"kind": "qrcode", "value": self.qrcode.value}, **key},
        }

    def signals(self, offset: int) -> Records:
        """A detection at the place of each kind, and of a position."""
        at = {"device": {"udid": "phone"}, "detected_at": int(NOW.timestamp()) * 1000}
        fields = enumerate(self.fields().values(), offset)
        return [record(DETECTIONS, number, each | at) for number, each in fields]

    def detections(self, offsets: range, **fields: Any) -> Records:
        """Detections of the beacon by one phone, second by second."""
        body = self.fields()["beacon"] | {"device": {"udid": "phone"}}
        begin = int(NOW.timestamp())
        return [
            record(DETECTIONS, offset, body | {"detected_at": (begin + offset) * 1000} | fields)
            for offset in offsets
        ]

    def notification(self, offset: int, number: str, **fields: Any) -> Any:
        """A notification with this id."""
        names = "campaign", "company", "venue", "beacon"
        body: dict[str, Any] = {name: {"id": getattr(self, name).id, "name": ""} for name in names}
        body |= {"id": number, "device": {"udid": "phone"}}
        body["detected_at"] = format_instant(NOW.timestamp())
        return record(NOTIFICATIONS, offset, body | fields)

    def presence(self, offset: int, number: str, minutes: float | None = None, **more: Any) -> Any:
        """An enter, or with `minutes` the exit of a visit of this length to the venue."""
        entered = NOW.timestamp()
        exited = {} if minutes is None else {"duration_seconds": round(minutes * 60)}
        body = {
            "id": number,
            "visit_id": str(UUID(int=1)),
            "type": "enter" if minutes is None else "exit",
            "place": {"kind": "venue", "id": self.venue.id, "name": "v"},
            "venue": {"id": self.venue.id, "name": "v"},
            "company": {"id": self.company.id},
            "device": {"udid": "phone", "name": "android"},
            "entered_at": format_instant(entered),
            "last_seen": format_instant(entered + (minutes or 0) * 60),
            "detections": 3,
        }
        return record(PRESENCE, offset, body | exited | more)

    async def visits(self) -> dict[tuple[str, int], tuple[int, int, int]]:
        """Visits begun and ended and their seconds by kind and least minutes."""
        async with self.database.read() as session:
            rows = await session.scalars(select(VisitStatistic))
            return {(r.kind, r.minutes): (r.begun, r.ended, r.seconds) for r in rows}

    async def counters(self, udid: str = "phone") -> tuple[int, int]:
        """nb_beacon and nb_campaign."""
        async with self.database.read() as session:
            chosen = (Device.udid == udid, Device.company_id == self.company.id)
            device = await session.scalar(select(Device).where(*chosen))
        return (0, 0) if device is None else (device.nb_beacon, device.nb_campaign)

    async def count(self, model: type[Base]) -> int:
        """The number of rows of a table."""
        async with self.database.read() as session:
            return await session.scalar(select(func.count()).select_from(model)) or 0

    async def statistics(self) -> dict[str, tuple[int, int, int]]:
        """Detections, devices and notifications by kind."""
        async with self.database.read() as session:
            rows = await session.scalars(select(Statistic))
            return {r.kind: (r.detections, r.devices, r.notifications) for r in rows}


@asynccontextmanager
async def open_scene(database_url: str) -> AsyncIterator[Scene]:
    """The scene on a migrated database."""
    async with migrated(database_url) as database:
        scene = Scene(database)
        await scene.save()
        await create_days(scene.ledger)
        yield scene


def ledger_on(database: Database) -> Ledger:
    kind = PostgresLedger if database.dialect == "postgresql" else SqliteLedger
    return kind(database.engine)


async def create_days(ledger: Ledger) -> None:
    """As retention does it."""
    today = datetime.now(UTC).date()
    await ledger.create_days(today - timedelta(days=31), today + timedelta(days=2))


async def next_offsets(ledger: Ledger, topic: str) -> dict[int, int]:
    """The first record that is not recorded, by partition."""
    return {number: at.offset for number, at in (await ledger.positions(topic)).items()}


def record(topic: str, offset: int, value: Any) -> "ConsumerRecord[bytes, bytes]":
    more: dict[str, Any] = {"partition": 0, "key": b"phone", "at": NOW.timestamp()}
    return kafka_record(value, topic=topic, offset=offset, **more)
