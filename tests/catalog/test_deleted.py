"""Deleted records are hidden from every query of a session, and keep id and name."""

from typing import Any

import pytest
from sqlalchemy import exists, func, select
from sqlalchemy.orm import aliased, selectinload

from catalog.database import Database
from catalog.models import (
    Beacon,
    Campaign,
    Company,
    Geofence,
    ScanTag,
    Tag,
    Venue,
)
from catalog.session import with_deleted
from tests.catalog.records import Records

MODELS: tuple[Any, ...] = (Venue, Beacon, Geofence, ScanTag, Campaign)


class Scene:
    """A venue with linked records of each kind, and a campaign of another venue that targets it."""

    def __init__(self, records: Records) -> None:
        company = records.company()
        self.venue, self.other = records.venue(company), records.venue(company)
        tag = records.tag(company)
        self.beacon = records.beacon(self.venue, tags=[tag])
        self.fence = Geofence(
            venue=self.venue, name="park", longitude=1, latitude=2, radius=3, active=True
        )
        self.scanned = records.scan_tag(self.venue)
        links = {"beacons": [self.beacon], "geofencings": [self.fence], "tags": [tag]}
        self.campaign = records.campaign(self.venue, scan_tags=[self.scanned], **links)
        self.from_outside = records.campaign(self.other, beacons=[self.beacon])

    def of(self, model: Any) -> Any:
        found = (self.venue, self.beacon, self.fence, self.scanned, self.campaign)
        return next(record for record in found if isinstance(record, model))


@pytest.fixture
async def scene(database: Database, records: Records) -> Scene:
    made = Scene(records)
    async with database.write.begin() as session:
        session.add_all([made.campaign, made.from_outside])
    return made


async def deleted(database: Database, record: Any) -> None:
    async with database.write.begin() as session:
        await session.delete(await session.get_one(type(record), record.id))


async def test_no_query_sees_it(database: Database, scene: Scene):
    for model in reversed(MODELS):
        await deleted(database, scene.of(model))
        await hidden(database, model, scene.of(model))


async def hidden(database: Database, model: Any, record: Any) -> None:
    other: Any = aliased(model)
    company = aliased(Company)
    inner = select(model.id).where(model.name == record.name)
    queries: list[Any] = [
        select(model).where(model.id == record.id),
        select(model.name).where(model.id == record.id),
        select(other.id).where(other.id == record.id),
        select(Company.id).where(Company.id.in_(select(model.id).where(model.id == record.id))),
        select(exists(select(model.id).where(model.id == record.id))).where(
            exists(select(model.id).where(model.id == record.id))
        ),
        select(company.id).where(exists().where(model.id == record.id)),
        select(inner.subquery()),
        select(func.count())
        .select_from(model)
        .where(model.id == record.id)
        .having(func.count() > 0),
        select(model.id).where(model.id == record.id).union(inner),
    ]
    async with database.read() as session:
        for query in queries:
            assert (await session.execute(query)).all() == [], query
        found = await session.get(model, record.id)
        assert found is None
        names = (await session.scalars(with_deleted(select(model.name)))).all()
        assert record.name in names


@pytest.mark.parametrize("model", MODELS)
async def test_no_record_refers_to_it(database: Database, scene: Scene, model: Any):
    await deleted(database, scene.of(model))
    links = (Campaign.beacons, Campaign.geofencings, Campaign.tags)
    async with database.read() as session:
        query = select(Campaign).options(*map(selectinload, links)).order_by(Campaign.id)
        left = {c.id: c for c in await session.scalars(query)}
    outside = left.pop(scene.from_outside.id)
    gone = model in (Beacon, Venue)
    assert [b.id for b in outside.beacons] == ([] if gone else [scene.beacon.id])
    assert list(left) == ([] if model in (Campaign, Venue) else [scene.campaign.id])
    for campaign in left.values():
        assert len(campaign.beacons) == int(model is not Beacon)
        assert len(campaign.geofencings) == int(model is not Geofence)


async def test_its_triple_is_free_and_its_id_is_not(
    database: Database, records: Records, scene: Scene
):
    for _ in range(3):
        async with database.write.begin() as session:
            found = (await session.scalars(select(Beacon))).one()
            triple = {"uuid": found.uuid, "major": found.major, "minor": found.minor}
            await session.delete(found)
            await session.flush()
            session.add(records.beacon(await session.get_one(Venue, scene.venue.id), **triple))
    async with database.read() as session:
        ids = (await session.scalars(with_deleted(select(Beacon.id)))).all()
        living = (await session.scalars(select(Beacon.id))).all()
    assert len(set(ids)) == 4
    assert living == [max(ids)]


async def test_the_last_id_is_not_given_again(database: Database, records: Records):
    """Also for rows that are really deleted: tags, devices, whole companies."""
    ids = []
    for _ in range(3):
        async with database.write.begin() as session:
            company = records.company()
            tag = records.tag(company)
            session.add(tag)
            await session.flush()
            ids.append((company.id, tag.id))
            await session.delete(tag)
            await session.delete(company)
    assert len({company for company, _ in ids}) == len({tag for _, tag in ids}) == 3
    async with database.read() as session:
        assert (await session.scalars(select(Tag))).all() == []
