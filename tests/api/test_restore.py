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


class Estate:
    """A venue with a record of each kind, by the paths of the records."""

    def __init__(self, api: Harness, owner: Headers, bodies: Bodies, venue: int) -> None:
        self.api, self.owner, self.venue = api, owner, venue
        tag = {"name": "Door", "value": "1", "active": True, "tags": ["t"]}
        inside = f"/region/{venue}"
        self.bodies = {
            f"{inside}/beacon": bodies.beacon(tags=["t"]),
            f"{inside}/geofencing": bodies.geofence(),
            f"{inside}/nfc": tag,
            f"{inside}/qrcode": tag,
            f"/lieu/{venue}/campaign": bodies.campaign(tags=["t"], on="exit"),
        }
        self.records: dict[str, Any] = {}

    async def fill(self) -> "Estate":
        for path, body in self.bodies.items():
            record = await self.api.made(path, self.owner, body)
            self.records[f"{path}/{record['id']}"] = record
        return self

    async def call(self, method: str, path: str) -> Any:
        return await self.api.call(method, path, self.owner)


@pytest.fixture
async def estate(api: Harness, owner: Headers, bodies: Bodies, venue: int) -> Estate:
    return await Estate(api, owner, bodies, venue).fill()


async def agrees(api: Harness) -> None:
    """The index in Redis has what SQL has."""
    stores = api.stores
    while await drain_once(api.database, stores.index_store) is not DrainResult.IDLE:
        pass
    assert await index_of(stores.redis, stores.index_store) == await fresh_index(api.database)


async def test_records_of_a_venue(api: Harness, owner: Headers, estate: Estate):
    for path, record in estate.records.items():
        assert (await estate.call("POST", f"{path}/restore")).status_code == 404
        assert (await estate.call("DELETE", path)).status_code == 200
        await agrees(api)
        stranger = await api.account()
        assert (await api.call("POST", f"{path}/restore", stranger)).status_code == 404
        answer = await estate.call("POST", f"{path}/restore")
        assert (answer.status_code, answer.json()) == (200, record), path
        assert await api.read(path, owner) == record
        await agrees(api)
    last = (await api.read("/audit", owner))[-1]
    assert (last["action"], last["kind"], last["ref"]) == ("restore", "campaign", record["id"])


async def test_a_venue_comes_back_with_what_was_deleted_with_it(
    api: Harness, owner: Headers, bodies: Bodies, estate: Estate
):
    place = f"/region/{estate.venue}"
    earlier = await api.made(f"{place}/nfc", owner, {"name": "x", "value": "x", "active": True})
    there = f"/region/{(await api.made('/region', owner, bodies.venue()))['id']}/beacon"
    aimed = await api.made(there, owner, bodies.beacon())
    far = bodies.campaign(beacons=[aimed["id"]])
    path = f"/lieu/{estate.venue}/campaign"
    campaign = await api.made(path, owner, far)
    assert (await estate.call("DELETE", f"{place}/nfc/{earlier['id']}")).status_code == 200
    before = await api.read(place, owner)
    await agrees(api)
    assert (await estate.call("DELETE", place)).status_code == 200
    await agrees(api)
    assert (await estate.call("POST", f"{path}/{campaign['id']}/restore")).status_code == 404
    assert (await estate.call("POST", f"{place}/restore")).json() == before
    for path, record in estate.records.items():
        assert await api.read(path, owner) == record
    assert (await estate.call("GET", f"{place}/nfc/{earlier['id']}")).status_code == 404
    await agrees(api)


async def test_what_is_taken(api: Harness, owner: Headers, estate: Estate):
    for path, body in estate.bodies.items():
        deleted = next(each for each in estate.records if each.startswith(path))
        assert (await estate.call("DELETE", deleted)).status_code == 200
        again = await api.made(path, owner, body)
        answer = await estate.call("POST", f"{deleted}/restore")
        assert (answer.status_code, answer.json()["message"]) == (409, "the name is taken")
        other = body | {"name": "another"}
        assert (await api.call("PUT", f"{path}/{again['id']}", owner, other)).status_code == 200
        answer = await estate.call("POST", f"{deleted}/restore")
        unique = "uuid" in body or "value" in body
        assert answer.status_code == (409 if unique else 200), path


async def test_for_30_days(api: Harness, owner: Headers, estate: Estate):
    path = next(iter(estate.records))
    assert (await estate.call("DELETE", path)).status_code == 200
    async with api.database.write.begin() as session:
        beacon = (await session.scalars(with_deleted(select(Beacon)))).one()
        beacon.deleted_at = datetime.now(UTC) - timedelta(days=30, seconds=1)
    assert (await estate.call("POST", f"{path}/restore")).status_code == 404
    reader = await api.account(None, beacon=1)
    assert (await api.call("POST", f"{path}/restore", reader)).status_code == 403
