"""Every kind of write fills the outbox, in its own transaction, whoever writes beside it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import delete, insert, select, text, update
from sqlalchemy.orm import selectinload

from catalog.database import Database, open_database
from catalog.errors import BulkWriteError
from catalog.index.drain import DrainResult, drain_once, rebuild
from catalog.index.writer import IndexStore
from catalog.models import (
    Beacon,
    Campaign,
    Company,
    Connector,
    Device,
    Geofence,
    Outbox,
    Tag,
    Venue,
    campaign_beacon,
)
from catalog.redis_connection import RedisClient
from tests.integration.catalog.records import NOON, UUID, Records, fresh_index, index_of
from tests.servers.schema import make_schema
from tests.servers.waiting import eventually

_OUTBOX = select(Outbox.kind, Outbox.ref)


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

    @property
    def all(self) -> list:
        return [self.campaign, self.tagged, self.other_tag, self.connector]


@pytest.fixture
async def scene(database: Database, records: Records) -> Scene:
    made = Scene(records)
    async with database.write.begin() as session:
        session.add_all(made.all)
    await emptied(database)
    return made


async def emptied(database: Database) -> set[tuple[str, str]]:
    async with database.write.begin() as session:
        rows = {(kind, ref) for kind, ref in await session.execute(_OUTBOX)}
        await session.execute(delete(Outbox))
    return rows


def ref(beacon: Beacon) -> str:
    return f"{UUID}:{beacon.major}:{beacon.minor}"


async def test_what_is_created(database: Database, records: Records):
    scene = Scene(records)
    async with database.write.begin() as session:
        session.add_all(scene.all)
    assert await emptied(database) == {
        ("beacon_id", str(scene.beacon.id)),
        ("beacon_id", str(scene.tagged.id)),
        ("campaign", str(scene.campaign.id)),
        ("tagged", f"{scene.venue.id}:{scene.tag.id}"),
        ("company", str(scene.company.id)),
    }


@pytest.mark.parametrize(
    ("model", "values", "kind"),
    [
        (Beacon, {"name": "new"}, "beacon_id"),
        (Beacon, {"x": 3, "color": "red"}, None),
        (Campaign, {"title": "new"}, "campaign"),
        (Campaign, {"nfcs": [1]}, None),
        (Venue, {"active": False}, "venue"),
        (Venue, {"time_zone": "Asia/Tokyo"}, "venue"),
        (Venue, {"address": "new", "width": 3}, None),
        (Connector, {"url": "https://example.org/new"}, "company"),
        (Company, {"description": "new"}, None),
        (Tag, {"name": "new"}, None),
    ],
)
async def test_what_is_edited(database: Database, scene: Scene, model, values, kind):
    async with database.write.begin() as session:
        record = (await session.scalars(select(model).order_by(model.id).limit(1))).one()
        for name, value in values.items():
            setattr(record, name, value)
    number = scene.company.id if kind == "company" else record.id
    assert await emptied(database) == ({(kind, str(number))} if kind else set())


async def test_old_and_new_triple(database: Database, scene: Scene):
    before = ref(scene.beacon)
    async with database.write.begin() as session:
        beacon = await session.get_one(Beacon, scene.beacon.id)
        beacon.minor = 60000
    assert await emptied(database) == {("beacon", before), ("beacon_id", str(beacon.id))}


async def test_targets_and_tags(database: Database, scene: Scene):
    async with database.write.begin() as session:
        query = select(Campaign).options(
            selectinload(Campaign.beacons), selectinload(Campaign.tags)
        )
        campaign = (await session.scalars(query)).one()
        campaign.beacons = [await session.get_one(Beacon, scene.tagged.id)]
        campaign.tags = [await session.get_one(Tag, scene.other_tag.id)]
    assert await emptied(database) == {
        ("beacon_id", str(scene.beacon.id)),
        ("beacon_id", str(scene.tagged.id)),
        ("tagged", f"{scene.venue.id}:{scene.tag.id}"),
        ("tagged", f"{scene.venue.id}:{scene.other_tag.id}"),
    }
    async with database.write.begin() as session:
        tagged = select(Beacon).where(Beacon.id == scene.tagged.id)
        beacon = (await session.scalars(tagged.options(selectinload(Beacon.tags)))).one()
        beacon.tags = []
    assert await emptied(database) == {("beacon_id", str(scene.tagged.id))}


@pytest.mark.parametrize("name", ["beacon", "campaign", "tag", "connector", "venue", "company"])
async def test_what_is_deleted(database: Database, scene: Scene, name: str):
    async with database.write.begin() as session:
        record = getattr(scene, name)
        await session.delete(await session.get_one(type(record), record.id))
    of_campaign = {
        ("campaign", str(scene.campaign.id)),
        ("beacon_id", str(scene.beacon.id)),
        ("tagged", f"{scene.venue.id}:{scene.tag.id}"),
    }
    of_venue = {("beacon", ref(scene.beacon)), ("beacon", ref(scene.tagged)), *of_campaign}
    of_company = ("company", str(scene.company.id))
    assert (
        await emptied(database)
        == {
            "beacon": {("beacon", ref(scene.beacon))},
            "campaign": of_campaign,
            "tag": {("beacon_id", str(scene.tagged.id))},
            "connector": {of_company},
            "venue": of_venue,
            "company": {of_company, *of_venue},
        }[name]
    )


async def test_rolled_back(database: Database, scene: Scene):
    async with database.write() as session:
        (await session.get_one(Beacon, scene.beacon.id)).name = "new"
        await session.flush()
        await session.rollback()
    assert await emptied(database) == set()


async def test_what_the_index_does_not_hold(database: Database, scene: Scene):
    async with database.write.begin() as session:
        company = await session.get_one(Company, scene.company.id)
        venue = await session.get_one(Venue, scene.venue.id)
        session.add(Device(company=company, udid="d", create_on=NOON, update_on=NOON))
        session.add(
            Geofence(venue=venue, name="g", longitude=2, latitude=48, radius=5, active=True)
        )
    assert await emptied(database) == set()


@pytest.mark.parametrize(
    "statement",
    [
        update(Beacon).values(name="new"),
        delete(Venue),
        insert(campaign_beacon).values(campaign_id=1, beacon_id=2),
    ],
)
async def test_bulk_statements_are_refused(database: Database, statement):
    async with database.write() as session:
        with pytest.raises(BulkWriteError, match="the index would not notice"):
            await session.execute(statement)


@pytest.fixture
async def postgres(postgres_url: str, records: Records):
    await make_schema(postgres_url)
    database = open_database(postgres_url)
    yield database
    await database.close()


async def settle(database: Database, store: IndexStore) -> None:
    while await drain_once(database, store) is not DrainResult.IDLE:
        pass


async def test_a_tag_meets_a_beacon_of_another_transaction(
    postgres: Database, store: IndexStore, redis: RedisClient, records: Records
):
    scene = Scene(records)
    async with postgres.write.begin() as session:
        session.add_all(scene.all)
    await rebuild(postgres, store)
    async with postgres.write.begin() as slow:
        query = select(Campaign).options(selectinload(Campaign.tags))
        campaign = (await slow.scalars(query)).one()
        campaign.tags = [await slow.get_one(Tag, scene.other_tag.id)]
        await slow.flush()
        async with postgres.write.begin() as quick:
            venue = await quick.get_one(Venue, scene.venue.id)
            tag = await quick.get_one(Tag, scene.other_tag.id)
            quick.add(records.beacon(venue, tags=[tag]))
        await settle(postgres, store)
    await settle(postgres, store)
    assert await index_of(redis, store) == await fresh_index(postgres)


@asynccontextmanager
async def deleting(database: Database, model: Any, key: int) -> AsyncIterator[asyncio.Task[None]]:
    """A deletion that another transaction keeps waiting; committed when the block ends."""

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
    postgres: Database, store: IndexStore, redis: RedisClient, records: Records
):
    scene = Scene(records)
    async with postgres.write.begin() as session:
        session.add_all(scene.all)
    await rebuild(postgres, store)
    async with AsyncExitStack() as stack:
        async with postgres.write.begin() as session:
            session.add(records.beacon(await session.get_one(Venue, scene.venue.id)))
            await session.flush()
            removal = await stack.enter_async_context(deleting(postgres, Venue, scene.venue.id))
        await asyncio.wait_for(removal, 10)
        await settle(postgres, store)
        assert len(beacons(await index_of(redis, store))) == 3
    await settle(postgres, store)
    assert beacons(await index_of(redis, store)) == []


async def test_a_deletion_meets_a_new_triple(
    postgres: Database, store: IndexStore, redis: RedisClient, records: Records
):
    scene = Scene(records)
    async with postgres.write.begin() as session:
        session.add_all(scene.all)
    await rebuild(postgres, store)
    async with AsyncExitStack() as stack:
        async with postgres.write.begin() as session:
            (await session.get_one(Beacon, scene.beacon.id)).minor = 60000
            await session.flush()
            removal = await stack.enter_async_context(deleting(postgres, Beacon, scene.beacon.id))
        await asyncio.wait_for(removal, 10)
        await settle(postgres, store)
        assert f"b:{UUID}:1:60000" in beacons(await index_of(redis, store))
    await settle(postgres, store)
    assert beacons(await index_of(redis, store)) == [f"b:{ref(scene.tagged)}"]


def beacons(content: dict[str, bytes]) -> list[str]:
    return [field for field in content if field.startswith("b:")]


async def test_an_edit_meets_a_new_triple(
    postgres: Database, store: IndexStore, redis: RedisClient, records: Records
):
    scene = Scene(records)
    async with postgres.write.begin() as session:
        session.add_all(scene.all)
    await rebuild(postgres, store)
    async with postgres.write.begin() as slow:
        beacon = await slow.get_one(Beacon, scene.beacon.id)
        async with postgres.write.begin() as quick:
            (await quick.get_one(Beacon, scene.beacon.id)).minor = 60000
        await settle(postgres, store)
        beacon.name = "new"
    await settle(postgres, store)
    assert await index_of(redis, store) == await fresh_index(postgres)
    async with postgres.write.begin() as slow:
        beacon = await slow.get_one(Beacon, scene.beacon.id)
        async with postgres.write.begin() as quick:
            (await quick.get_one(Beacon, scene.beacon.id)).minor = 60001
        await settle(postgres, store)
        await slow.delete(beacon)
    await settle(postgres, store)
    assert await index_of(redis, store) == await fresh_index(postgres)
