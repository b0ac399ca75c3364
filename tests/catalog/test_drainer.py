"""The drainer keeps the index up to date through every outage."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from sqlalchemy import select

from catalog.database import Database
from catalog.index.drain import IndexStore, OutboxDrainer
from catalog.index.entries import beacon_field, decode_place
from catalog.models import Beacon
from catalog.redis_connection import RedisClient, connect_redis
from engine.process.lifecycle import cancel
from tests.catalog.records import UUID, Records
from tests.servers.redis import RedisServer
from tests.servers.waiting import eventually


@asynccontextmanager
async def draining(database: Database, store: IndexStore) -> AsyncIterator[OutboxDrainer]:
    drainer = OutboxDrainer(
        database=database,
        store=store,
        poll=0.05,
        longest_pause=0.2,
    )
    task = asyncio.create_task(drainer.run())
    try:
        yield drainer
    finally:
        await cancel([task])


async def add_beacon(database: Database, records: Records) -> Beacon:
    async with database.write.begin() as session:
        beacon = records.beacon(records.venue(records.company()))
        session.add(beacon)
    return beacon


async def rename(database: Database, name: str) -> None:
    async with database.write.begin() as session:
        (await session.scalars(select(Beacon))).one().name = name


async def arrives(redis: RedisClient, store: IndexStore, beacon: Beacon, name: str) -> float:
    field = beacon_field(UUID, beacon.major, beacon.minor)
    began = time.monotonic()

    async def is_there() -> bool:
        raw = await redis.hget(store.keys.of(field), field)
        return raw is not None and decode_place(raw).place.name == name

    condition: Callable[[], bool | Awaitable[bool]] = is_there
    await eventually(condition, what=name)
    return time.monotonic() - began


async def test_redis_down(database: Database, own_redis: RedisServer, records: Records):
    client = connect_redis(own_redis.url, timeout=1.0)
    store = IndexStore(client, prefix="test:", deadline=1.0)
    beacon = await add_beacon(database, records)
    async with draining(database, store) as drainer:
        await arrives(client, store, beacon, beacon.name)
        own_redis.stop()
        await rename(database, "while away")
        await eventually(lambda: drainer.failures > 2)
        own_redis.start()
        await arrives(client, store, beacon, "while away")
        await eventually(lambda: not drainer.failures)
    await client.aclose()
