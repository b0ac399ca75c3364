"""Every kind of write fills the outbox in its own transaction; what overlaps reaches the index."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import delete, insert, select, text, update
from sqlalchemy.orm import selectinload

from catalog.database import Database, open_database
from catalog.errors import BulkWriteError
from catalog.index.drain import DrainResult, IndexStore, drain_once, rebuild
from catalog.models import (
    Account,
    Beacon,
    Campaign,
    Tag,
    Venue,
    campaign_beacon,
)
from catalog.redis_connection import RedisClient
from tests.catalog.records import Records, fresh_index, index_of
from tests.servers.schema import make_schema
from tests.servers.waiting import eventually


class Scene:
    """A company with a venue, two beacons (one tagged), and a campaign tied to both."""

    def __init__(self, records: Records) -> None:
        self.company = records.company()
        self.venue = records.venue(self.company)
        self.tag, self.other_tag = records.tag(self.company), records.tag(self.company)
        self.beacon = records.beacon(self.venue)
        self.tagged = records.beacon(self.venue, tags=[self.tag])
        self.campaign = records.campaign(self.venue, beacons=[self.beacon], tags=[self.tag])
        self.connector = records.connector(self.company)
        self.places = (records.geofence(self.venue), records.scan_tag(self.venue))

    @property
    def all(self) -> list:
        return [self.campaign, self.tagged, self.other_tag, self.connector, *self.places]


@pytest.mark.parametrize(
    "statement",
    [
        update(Beacon).values(name="new"),
        delete(Venue),
        update(Account).values(active=False),
        insert(campaign_beacon).values(campaign_id=1, beacon_id=2),
    ],
)
async def test_bulk_statements_are_refused(database: Database, statement: Any):
    async with database.write() as session:
        with pytest.raises(BulkWriteError, match="through the session's objects"):
            await session.execute(statement)


@pytest.fixture
async def postgres(postgres_url: str) -> AsyncIterator[Database]:
    await make_schema(postgres_url)
    database = open_database(postgres_url)
    yield database
    await database.close()


@pytest.fixture
async def indexed(postgres: Database, store: IndexStore, records: Records) -> Scene:
    """Records in SQL and in the index."""
    made = Scene(records)
    async with postgres.write.begin() as session:
        session.add_all(made.all)
    await rebuild(postgres, store)
    return made


async def drain_until_empty(database: Database, store: IndexStore) -> None:
    while await drain_once(database, store) is not DrainResult.IDLE:
        pass


async def test_a_tag_meets_a_beacon_of_another_transaction(
    postgres: Database, store: IndexStore, redis: RedisClient, records: Records, indexed: Scene
):
    async with postgres.write.begin() as slow:
        query = select(Campaign).options(selectinload(Campaign.tags))
        campaign = (await slow.scalars(query)).one()
        campaign.tags = [await slow.get_one(Tag, indexed.other_tag.id)]
        await slow.flush()
        async with postgres.write.begin() as quick:
            venue = await quick.get_one(Venue, indexed.venue.id)
            tag = await quick.get_one(Tag, indexed.other_tag.id)
            quick.add(records.beacon(venue, tags=[tag]))
        await drain_until_empty(postgres, store)
    await drain_until_empty(postgres, store)
    assert await index_of(redis, store) == await fresh_index(postgres)


@asynccontextmanager
async def deleting(database: Database, model: Any, key: int) -> AsyncIterator[asyncio.Task[None]]:
    """A deletion that waits for another transaction; committed when the block ends."""

    async def waits() -> bool:
        async with database.read() as session:
            locks = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
            return bool(await session.scalar(locks))

    async with database.write.begin() as session:
        await session.delete(await session.get_one(model, key))
        removal = asyncio.create_task(session.flush())
        condition: Callable[[], bool | Awaitable[bool]] = waits
        await eventually(condition)
        yield removal


async def test_a_deletion_meets_a_newcomer(
    postgres: Database, store: IndexStore, redis: RedisClient, records: Records, indexed: Scene
):
    async with AsyncExitStack() as stack:
        async with postgres.write.begin() as session:
            session.add(records.beacon(await session.get_one(Venue, indexed.venue.id)))
            await session.flush()
            removal = await stack.enter_async_context(deleting(postgres, Venue, indexed.venue.id))
        await asyncio.wait_for(removal, 90)
        await drain_until_empty(postgres, store)
        assert len(beacons(await index_of(redis, store))) == 3
    await drain_until_empty(postgres, store)
    assert beacons(await index_of(redis, store)) == []


def beacons(content: dict[str, bytes]) -> list[str]:
    return [field for field in content if field.startswith("b:")]


async def test_an_edit_meets_a_new_triple(
    postgres: Database, store: IndexStore, redis: RedisClient, indexed: Scene
):
    async with postgres.write.begin() as slow:
        beacon = await slow.get_one(Beacon, indexed.beacon.id)
        async with postgres.write.begin() as quick:
            (await quick.get_one(Beacon, indexed.beacon.id)).minor = 60000
        await drain_until_empty(postgres, store)
        beacon.name = "new"
    await drain_until_empty(postgres, store)
    assert await index_of(redis, store) == await fresh_index(postgres)
    async with postgres.write.begin() as slow:
        beacon = await slow.get_one(Beacon, indexed.beacon.id)
        async with postgres.write.begin() as quick:
            (await quick.get_one(Beacon, indexed.beacon.id)).minor = 60001
        await drain_until_empty(postgres, store)
        await slow.delete(beacon)
    await drain_until_empty(postgres, store)
    assert await index_of(redis, store) == await fresh_index(postgres)
