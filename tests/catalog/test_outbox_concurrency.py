"""Writes in overlapping transactions: the index gets the changes of both."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import select, text
from sqlalchemy.orm import selectinload

from catalog.database import Database, open_database
from catalog.index.drain import DrainResult, drain_once, rebuild
from catalog.index.store import IndexStore
from catalog.models import (
    Beacon,
    Campaign,
    Tag,
    Venue,
)
from catalog.redis_connection import RedisClient
from tests.catalog.outbox_scene import Scene, ref
from tests.catalog.records import UUID, Records, fresh_index, index_of
from tests.servers.schema import make_schema
from tests.servers.waiting import eventually


@pytest.fixture
async def postgres(postgres_url: str, records: Records):
    await make_schema(postgres_url)
    database = open_database(postgres_url)
    yield database
    await database.close()


@pytest.fixture
async def scene(postgres: Database, store: IndexStore, records: Records) -> Scene:
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
    postgres: Database, store: IndexStore, redis: RedisClient, records: Records, scene: Scene
):
    async with postgres.write.begin() as slow:
        query = select(Campaign).options(selectinload(Campaign.tags))
        campaign = (await slow.scalars(query)).one()
        campaign.tags = [await slow.get_one(Tag, scene.other_tag.id)]
        await slow.flush()
        async with postgres.write.begin() as quick:
            venue = await quick.get_one(Venue, scene.venue.id)
            tag = await quick.get_one(Tag, scene.other_tag.id)
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
    postgres: Database, store: IndexStore, redis: RedisClient, records: Records, scene: Scene
):
    async with AsyncExitStack() as stack:
        async with postgres.write.begin() as session:
            session.add(records.beacon(await session.get_one(Venue, scene.venue.id)))
            await session.flush()
            removal = await stack.enter_async_context(deleting(postgres, Venue, scene.venue.id))
        await asyncio.wait_for(removal, 10)
        await drain_until_empty(postgres, store)
        assert len(beacons(await index_of(redis, store))) == 3
    await drain_until_empty(postgres, store)
    assert beacons(await index_of(redis, store)) == []


async def test_a_deletion_meets_a_new_triple(
    postgres: Database, store: IndexStore, redis: RedisClient, scene: Scene
):
    async with AsyncExitStack() as stack:
        async with postgres.write.begin() as session:
            (await session.get_one(Beacon, scene.beacon.id)).minor = 60000
            await session.flush()
            removal = await stack.enter_async_context(deleting(postgres, Beacon, scene.beacon.id))
        await asyncio.wait_for(removal, 10)
        await drain_until_empty(postgres, store)
        assert f"b:{UUID}:1:60000" in beacons(await index_of(redis, store))
    await drain_until_empty(postgres, store)
    assert beacons(await index_of(redis, store)) == [f"b:{ref(scene.tagged)}"]


def beacons(content: dict[str, bytes]) -> list[str]:
    return [field for field in content if field.startswith("b:")]


async def test_an_edit_meets_a_new_triple(
    postgres: Database, store: IndexStore, redis: RedisClient, scene: Scene
):
    async with postgres.write.begin() as slow:
        beacon = await slow.get_one(Beacon, scene.beacon.id)
        async with postgres.write.begin() as quick:
            (await quick.get_one(Beacon, scene.beacon.id)).minor = 60000
        await drain_until_empty(postgres, store)
        beacon.name = "new"
    await drain_until_empty(postgres, store)
    assert await index_of(redis, store) == await fresh_index(postgres)
    async with postgres.write.begin() as slow:
        beacon = await slow.get_one(Beacon, scene.beacon.id)
        async with postgres.write.begin() as quick:
            (await quick.get_one(Beacon, scene.beacon.id)).minor = 60001
        await drain_until_empty(postgres, store)
        await slow.delete(beacon)
    await drain_until_empty(postgres, store)
    assert await index_of(redis, store) == await fresh_index(postgres)
