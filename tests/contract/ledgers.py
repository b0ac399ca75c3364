"""A ledger and its store on a fresh database, and a small catalog to record into."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy import func, select

from catalog.database import Database, open_database
from catalog.models import Application, Beacon, Campaign, Company, Device, Venue
from engine.kafka.positions import Position
from engine.recorder.ledger import Ledger
from engine.recorder.postgresql import PostgresLedger
from engine.recorder.postgresql_retention import PostgresRetentionStore
from engine.recorder.retention import RetentionStore
from engine.recorder.rows import ReceptionRow
from engine.recorder.sqlite import SqliteLedger
from engine.recorder.sqlite_retention import SqliteRetentionStore
from tests.integration.catalog.records import NOON, Records
from tests.servers.schema import make_schema

NOW = datetime(2026, 11, 20, 10, 30, 15, 123000, tzinfo=UTC)


@dataclass(frozen=True)
class Scene:
    """A company with a venue, a beacon, a campaign and an application; and another company."""

    database: Database
    ledger: Ledger
    store: RetentionStore
    company: Company
    other: Company
    venue: Venue
    beacon: Beacon
    campaign: Campaign
    application: Application
    records: Records


async def next_offsets(ledger: Ledger, topic: str) -> dict[int, int]:
    """The first record that is not recorded, by partition."""
    return {number: at.offset for number, at in (await ledger.positions(topic)).items()}


async def move_position(
    ledger: Ledger, topic: str, partition: int, old: Position | None, new: Position
) -> bool:
    """Write in a transaction."""
    async with ledger.transaction() as transaction:
        return await transaction.move_position(topic, partition, old, new)


@asynccontextmanager
async def open_scene(database_url: str) -> AsyncIterator[Scene]:
    """The scene on a migrated database."""
    await make_schema(database_url)
    database = open_database(database_url)
    try:
        yield await _scene(database)
    finally:
        await database.close()


async def _scene(database: Database) -> Scene:
    records = Records()
    company, other = records.company(), records.company()
    venue = records.venue(company, time_zone="Europe/Paris")
    beacon, campaign = records.beacon(venue), records.campaign(venue)
    application = Application(company=company, name="app", type="ios", api_key="key-1", active=True)
    tested = Device(company=company, udid="of-the-team", test=True, create_on=NOON, update_on=NOON)
    async with database.write() as session, session.begin():
        session.add_all([company, other, venue, beacon, campaign, application, tested])
    ledger: Ledger
    store: RetentionStore
    if database.dialect == "postgresql":
        ledger, store = PostgresLedger(database.engine), PostgresRetentionStore(database.engine)
    else:
        ledger, store = SqliteLedger(database.engine), SqliteRetentionStore(database.engine)
    return Scene(
        database, ledger, store, company, other, venue, beacon, campaign, application, records
    )


def reception(notification: UUID, at: datetime = NOW) -> ReceptionRow:
    return ReceptionRow(notification, 1, 2, at)


async def count(scene: Scene, model: type) -> int:
    async with scene.database.read() as session:
        return await session.scalar(select(func.count()).select_from(model)) or 0
