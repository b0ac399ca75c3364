"""Reads SQL at one moment, in one read-only transaction: offsets, catalog and figures."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from aiokafka import TopicPartition
from sqlalchemy import Subquery, and_, func, null, select, text, type_coerce
from sqlalchemy.ext.asyncio import AsyncConnection

from catalog.database import Database
from catalog.models import (
    Application,
    AuthenticationTrace,
    Beacon,
    Company,
    DetectionTrace,
    Device,
    Reception,
    RecorderOffset,
    ReplacedTopic,
    Venue,
)
from catalog.models.base import Instant
from engine.cli.verify.difference import RecordedDevice
from engine.cli.verify.recount import (
    ApplicationFact,
    BeaconFact,
    DeviceShare,
    Interval,
    RecountCatalog,
)
from engine.kafka.detections import BeaconKey
from engine.kafka.positions import Position

TraceTable = DetectionTrace | AuthenticationTrace | Reception


class SqlSnapshot:
    """Reads within the transaction and does not see later commits."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def positions(self, topics: Collection[str]) -> dict[TopicPartition, Position]:
        """The position of the first record that is not recorded, by partition with any records."""
        offset = RecorderOffset
        query = select(offset.topic, offset.partition, offset.next_offset, offset.topic_id)
        rows = await self._connection.execute(query.where(offset.topic.in_(topics)))
        return {
            TopicPartition(topic, number): Position(at, topic_id)
            for topic, number, at, topic_id in rows
        }

    async def now(self) -> float:
        """The time on SQL's clock, in epoch seconds."""
        now = await self._connection.scalar(select(type_coerce(func.current_timestamp(), Instant)))
        return float(now.timestamp()) if now is not None else 0.0

    async def replaced_topics(self, topics: Collection[str]) -> set[str]:
        """The topics that replaced another topic of the same name, which was recorded too."""
        query = select(ReplacedTopic.topic).where(ReplacedTopic.topic.in_(topics))
        return set(await self._connection.scalars(query))

    async def catalog(self) -> RecountCatalog:
        """Every beacon, company and application."""
        companies = await self._connection.scalars(select(Company.id))
        return RecountCatalog(
            await self._beacons(), frozenset(companies), await self._applications()
        )

    async def devices(
        self, share: DeviceShare, retained: Interval, traces: bool
    ) -> AsyncIterator[RecordedDevice]:
        """The devices of a share; their traces from the time that is `retained`."""
        detections, receptions, authentications = (
            _counts(table, retained) for table in (DetectionTrace, Reception, AuthenticationTrace)
        )
        query = select(
            Device.id,
            Device.company_id,
            Device.udid,
            Device.nb_beacon,
            Device.nb_campaign,
            func.coalesce(detections.c.rows, 0) if traces else null(),
            func.coalesce(receptions.c.rows, 0),
            func.coalesce(authentications.c.rows, 0),
        )
        for counts in (*([detections] if traces else []), receptions, authentications):
            query = query.outerjoin(counts, counts.c.device_id == Device.id)
        async with self._connection.stream(query) as rows:
            async for row in rows:
                if share.has(row.udid):
                    yield RecordedDevice._make(row)

    async def _beacons(self) -> dict[BeaconKey, BeaconFact]:
        # Deleted beacons are inactive. Of several with the same triple the undeleted one counts.
        living = and_(Beacon.deleted_at.is_(None), Venue.deleted_at.is_(None))
        active = and_(living, Beacon.active, Venue.active)
        query = select(Beacon.uuid, Beacon.major, Beacon.minor, Venue.company_id, active)
        query = query.join(Venue).order_by(living, Beacon.deleted_at)
        found: dict[BeaconKey, BeaconFact] = {}
        async with self._connection.stream(query) as rows:
            async for uuid, major, minor, company_id, is_active in rows:
                key = BeaconKey(uuid, major, minor)
                old = found.get(key)
                # If several have the same triple, the undeleted one comes last.
                before = frozenset() if old is None else old.former_companies | {old.company_id}
                found[key] = BeaconFact(company_id, bool(is_active), before)
        return found

    async def _applications(self) -> dict[str, ApplicationFact]:
        of = Application
        query = select(of.api_key, of.company_id, of.active, of.expire_on)
        async with self._connection.stream(query) as rows:
            return {
                key: ApplicationFact(company_id, active, expire_on)
                async for key, company_id, active, expire_on in rows
            }


@asynccontextmanager
async def open_snapshot(database: Database) -> AsyncIterator[SqlSnapshot]:
    """A snapshot while the context lasts. Raises SQLAlchemyError or OSError."""
    async with database.engine.connect() as connection:
        if database.dialect == "postgresql":
            await connection.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )
        async with connection.begin():
            if database.dialect == "postgresql":
                # The transaction is idle while the topics are read, which may take long.
                await connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
            yield SqlSnapshot(connection)


def _counts(table: type[TraceTable], retained: Interval) -> Subquery:
    """The number of rows from that time, by device."""
    since, until = (datetime.fromtimestamp(instant, UTC) for instant in retained)
    query = select(table.device_id, func.count().label("rows"))
    query = query.where(table.create_on >= since, table.create_on < until)
    return query.group_by(table.device_id).subquery()
