"""The outbox: what two transactions change at once reaches the index, also after an outage."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from sqlalchemy import select, text
from sqlalchemy.orm import selectinload

from catalog.database import Database
from catalog.index.drain import IndexStore, OutboxDrainer, rebuild
from catalog.models import Beacon, Campaign, Tag, Venue
from catalog.redis_connection import RedisClient, connect_redis
from engine.process.lifecycle import cancel
from tests.catalog.records import Records, drain, fresh_index, index_of
from tests.servers.redis import RedisServer
from tests.servers.schema import on_postgres
from tests.servers.waiting import eventually

# (SQLite has one writer at a time.)


class Scene:
    """A venue with two beacons, a campaign, and a tag that none of them carries yet."""

    def __init__(self, records: Records) -> None:
        self.company = records.company()
        self.venue = records.venue(self.company)
        self.tag = records.tag(self.company)
        self.beacon, self.other = records.beacon(self.venue), records.beacon(self.venue)
        self.campaign = records.campaign(self.venue, beacons=[self.beacon])


@pytest.fixture
async def scene(database: Database, store: IndexStore, records: Records) -> Scene:
    """Records in SQL and in the index."""
    made = Scene(records)
    async with database.write.begin() as session:
        session.add_all([made.campaign, made.other, made.tag])
    await rebuild(database, store)
    return made


@on_postgres
async def test_a_tag_meets_a_beacon_of_another_transaction(
    database: Database, store: IndexStore, redis: RedisClient, records: Records, scene: Scene
):
    async with database.write.begin() as slow:
        options = [selectinload(Campaign.tags)]
        campaign = await slow.get_one(Campaign, scene.campaign.id, options=options)
        campaign.tags = [await slow.get_one(Tag, scene.tag.id)]
        await slow.flush()
        async with database.write.begin() as quick:
            venue, tag = scene.venue.id, await quick.get_one(Tag, scene.tag.id)
            quick.add(records.beacon(await quick.get_one(Venue, venue), tags=[tag]))
        await drain(database, store)
    await drain(database, store)
    assert await index_of(redis, store) == await fresh_index(database)


@on_postgres
async def test_a_deletion_meets_a_newcomer(
    database: Database, store: IndexStore, redis: RedisClient, records: Records, scene: Scene
):
    async def beacons() -> int:
        await drain(database, store)
        return sum(field.startswith("b:") for field in await index_of(redis, store))

    async def waits() -> bool:
        async with database.read() as session:
            locks = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
            return bool(await session.scalar(locks))

    async with AsyncExitStack() as stack:
        async with database.write.begin() as adding:
            adding.add(records.beacon(await adding.get_one(Venue, scene.venue.id)))
            await adding.flush()
            session = await stack.enter_async_context(database.write.begin())
            await session.delete(await session.get_one(Venue, scene.venue.id))
            removal = asyncio.create_task(session.flush())
            await eventually(waits)
        await asyncio.wait_for(removal, 10)
        assert await beacons() == 3
    assert await beacons() == 0


@on_postgres
@pytest.mark.parametrize("deletes", [False, True])
async def test_an_edit_meets_a_new_triple(
    database: Database, store: IndexStore, redis: RedisClient, scene: Scene, deletes: bool
):
    async with database.write.begin() as slow:
        beacon = await slow.get_one(Beacon, scene.beacon.id)
        async with database.write.begin() as quick:
            (await quick.get_one(Beacon, scene.beacon.id)).minor = 60000
        await drain(database, store)
        if deletes:
            await slow.delete(beacon)
        else:
            beacon.name = "new"
    await drain(database, store)
    assert await index_of(redis, store) == await fresh_index(database)


async def test_redis_down(database: Database, own_redis: RedisServer, records: Records):
    client = connect_redis(own_redis.url, timeout=1.0)
    store = IndexStore(client, prefix="test:", deadline=1.0)
    drainer = OutboxDrainer(database=database, store=store, poll=0.05, longest_pause=0.2)
    await rebuild(database, store)

    async def agrees() -> bool:
        return await index_of(client, store) == await fresh_index(database)

    task = asyncio.create_task(drainer.run())
    try:
        async with database.write.begin() as session:
            session.add(records.beacon(records.venue(records.company())))
        await eventually(agrees)
        own_redis.stop()
        async with database.write.begin() as session:
            (await session.scalars(select(Beacon))).one().name = "while away"
        await eventually(lambda: drainer.failures > 2)
        own_redis.start()
        await eventually(lambda: not drainer.failures)
        await eventually(agrees)
    finally:
        await cancel([task])
        await client.aclose()
