"""Every kind of write fills the outbox, in its own transaction."""

import pytest
from sqlalchemy import delete, insert, select, update
from sqlalchemy.orm import selectinload

from catalog.database import Database
from catalog.errors import BulkWriteError
from catalog.models import (
    Beacon,
    Campaign,
    Company,
    Connector,
    Device,
    Geofence,
    Tag,
    Venue,
    campaign_beacon,
)
from tests.catalog.outbox_scene import Scene, emptied, ref
from tests.catalog.records import NOON, Records


@pytest.fixture
async def scene(database: Database, records: Records) -> Scene:
    made = Scene(records)
    async with database.write.begin() as session:
        session.add_all(made.all)
    await emptied(database)
    return made


async def test_created_records_are_in_the_outbox(database: Database, records: Records):
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
async def test_edited_records_are_in_the_outbox(
    database: Database, scene: Scene, model, values, kind
):
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


@pytest.mark.parametrize("name", ["beacon", "campaign", "connector", "venue"])
async def test_deleted_records_are_in_the_outbox(database: Database, scene: Scene, name: str):
    async with database.write.begin() as session:
        record = getattr(scene, name)
        await session.delete(await session.get_one(type(record), record.id))
    of_campaign = {
        ("campaign", str(scene.campaign.id)),
        ("beacon_id", str(scene.beacon.id)),
        ("tagged", f"{scene.venue.id}:{scene.tag.id}"),
    }
    of_venue = {("beacon", ref(scene.beacon)), ("beacon", ref(scene.tagged)), *of_campaign}
    assert (
        await emptied(database)
        == {
            "beacon": {("beacon", ref(scene.beacon))},
            "campaign": of_campaign,
            "connector": {("company", str(scene.company.id))},
            "venue": of_venue,
        }[name]
    )


async def test_rolled_back(database: Database, scene: Scene):
    async with database.write() as session:
        (await session.get_one(Beacon, scene.beacon.id)).name = "new"
        await session.flush()
        await session.rollback()
    assert await emptied(database) == set()


async def test_records_outside_the_index_are_not_in_the_outbox(database: Database, scene: Scene):
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
