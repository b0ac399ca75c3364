"""What was deleted can be restored for 30 days."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select

from catalog.index.drain import DrainResult, drain_once
from catalog.models import Beacon
from catalog.session import with_deleted
from tests.api.harness import Bodies, Harness, Headers
from tests.catalog.records import fresh_index, index_of


@pytest.fixture
def records(bodies: Bodies, venue: int) -> dict[str, Any]:
    """A body of each kind, by the path that creates it."""
    tag = bodies.tag(tags=["t"])
    return {
        f"/region/{venue}/beacon": bodies.beacon(tags=["t"]),
        f"/region/{venue}/geofencing": bodies.geofence(),
        f"/region/{venue}/nfc": tag,
        f"/region/{venue}/qrcode": tag,
        f"/lieu/{venue}/campaign": bodies.campaign(tags=["t"], on="exit"),
    }


async def agrees(api: Harness) -> None:
    """The index in Redis has what SQL has."""
    stores = api.stores
    while await drain_once(api.database, stores.index_store) is not DrainResult.IDLE:
        pass
    assert await index_of(stores.redis, stores.index_store) == await fresh_index(api.database)


async def test_records_of_a_venue(api: Harness, owner: Headers, records: dict[str, Any]):
    stranger = await api.account()
    for where, body in records.items():
        record = await api.made(where, owner, body)
        path = f"{where}/{record['id']}"
        assert (await api.call("POST", f"{path}/restore", owner)).status_code == 404
        assert (await api.call("DELETE", path, owner)).status_code == 200
        await agrees(api)
        assert (await api.call("POST", f"{path}/restore", stranger)).status_code == 404
        answer = await api.call("POST", f"{path}/restore", owner)
        assert (answer.status_code, answer.json()) == (200, record), path
        assert await api.read(path, owner) == record
        await agrees(api)
    last = (await api.read("/audit", owner))[-1]
    assert (last["action"], last["kind"], last["ref"]) == ("restore", "campaign", record["id"])


async def test_a_venue_comes_back_with_what_was_deleted_with_it(
    api: Harness, owner: Headers, bodies: Bodies, venue: int, records: dict[str, Any]
):
    place = f"/region/{venue}"
    made = {path: await api.made(path, owner, body) for path, body in records.items()}
    tag = await api.made(f"{place}/nfc", owner, bodies.tag())
    earlier = f"{place}/nfc/{tag['id']}"
    assert (await api.call("DELETE", earlier, owner)).status_code == 200
    before = await api.read(place, owner)
    assert (await api.call("DELETE", place, owner)).status_code == 200
    await agrees(api)
    restore = f"{next(iter(made))}/{next(iter(made.values()))['id']}/restore"
    assert (await api.call("POST", restore, owner)).status_code == 404
    assert (await api.call("POST", f"{place}/restore", owner)).json() == before
    for path, record in made.items():
        assert await api.read(f"{path}/{record['id']}", owner) == record
    assert (await api.call("GET", earlier, owner)).status_code == 404
    await agrees(api)


async def test_what_is_taken(api: Harness, owner: Headers, records: dict[str, Any]):
    for path, body in records.items():
        deleted = f"{path}/{(await api.made(path, owner, body))['id']}"
        assert (await api.call("DELETE", deleted, owner)).status_code == 200
        again = await api.made(path, owner, body)
        answer = await api.call("POST", f"{deleted}/restore", owner)
        assert (answer.status_code, answer.json()["message"]) == (409, "the name is taken")
        other = body | {"name": "another"}
        assert (await api.call("PUT", f"{path}/{again['id']}", owner, other)).status_code == 200
        answer = await api.call("POST", f"{deleted}/restore", owner)
        unique = "uuid" in body or "value" in body
        assert answer.status_code == (409 if unique else 200), path


async def test_for_30_days(api: Harness, owner: Headers, bodies: Bodies, venue: int):
    where = f"/region/{venue}/beacon"
    path = f"{where}/{(await api.made(where, owner, bodies.beacon()))['id']}"
    assert (await api.call("DELETE", path, owner)).status_code == 200
    async with api.database.write.begin() as session:
        beacon = (await session.scalars(with_deleted(select(Beacon)))).one()
        beacon.deleted_at = datetime.now(UTC) - timedelta(days=30, seconds=1)
    assert (await api.call("POST", f"{path}/restore", owner)).status_code == 404
