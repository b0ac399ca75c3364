"""Deleted records are hidden from every query of a session and of the recorder, and keep id and
name."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import exists, func, select
from sqlalchemy.orm import aliased

from catalog.database import Database
from catalog.models import Beacon, Company, Tag, Venue
from catalog.session import with_deleted
from engine.kafka.detections import BeaconKey, PlaceKey
from engine.recorder.ledger import ActivePlace
from tests.catalog.records import Records
from tests.recorder.scene import Scene, open_scene


@pytest.fixture
async def scene(database: Database, records: Records) -> list[Any]:
    """A record of each kind in a venue, and the venue."""
    venue = records.venue(records.company())
    makers = (records.beacon, records.geofence, records.scan_tag, records.campaign)
    made: list[Any] = [*(make(venue) for make in makers), venue]
    async with database.write.begin() as session:
        session.add_all(made)
    return made


async def test_no_query_sees_it(database: Database, scene: list[Any]):
    for record in scene:
        async with database.write.begin() as session:
            await session.delete(await session.get_one(type(record), record.id))
        await hidden(database, type(record), record)


async def hidden(database: Database, model: Any, record: Any) -> None:
    other: Any = aliased(model)
    company = aliased(Company)
    inner = select(model.id).where(model.name == record.name)
    queries: list[Any] = [
        select(model).where(model.id == record.id),
        select(model.name).where(model.id == record.id),
        select(other.id).where(other.id == record.id),
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


async def test_its_triple_is_free_and_its_id_is_not(
    database: Database, records: Records, scene: list[Any]
):
    for _ in range(3):
        async with database.write.begin() as session:
            found = (await session.scalars(select(Beacon))).one()
            triple = {"uuid": found.uuid, "major": found.major, "minor": found.minor}
            await session.delete(found)
            await session.flush()
            session.add(records.beacon(await session.get_one(Venue, scene[-1].id), **triple))
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


@pytest.fixture
async def recorded(database_url: str) -> AsyncIterator[Scene]:
    async with open_scene(database_url) as scene:
        yield scene


def key(scene: Scene) -> BeaconKey:
    return BeaconKey(scene.beacon.uuid, scene.beacon.major, scene.beacon.minor)


async def places(scene: Scene) -> dict[PlaceKey, ActivePlace]:
    async with scene.ledger.transaction() as transaction:
        return dict(await transaction.active_places([key(scene)]))


@pytest.mark.parametrize("model", [Beacon, Venue])
async def test_a_detection_adds_nothing_from_the_deletion_on(recorded: Scene, model: type):
    assert list(await places(recorded)) == [key(recorded)]
    async with recorded.database.write.begin() as session:
        number = recorded.beacon.id if model is Beacon else recorded.venue.id
        await session.delete(await session.get_one(model, number))
    assert await places(recorded) == {}
    # A notification that was under way is counted on its day.
    async with recorded.ledger.transaction() as transaction:
        zones = await transaction.venue_time_zones([recorded.venue.id])
    assert zones == {recorded.venue.id: "Europe/Paris"}
