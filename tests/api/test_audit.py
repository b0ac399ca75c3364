"""Who changed what and when, secrets left out; and what was deleted can be restored for 30 days."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select

from catalog.index.drain import DrainResult, drain_once
from catalog.models import Beacon
from catalog.session import with_deleted
from tests.api.harness import VENUE, Bodies, Harness, Headers
from tests.catalog.records import fresh_index, index_of


async def test_every_kind_of_change(api: Harness, owner: Headers, bodies: Bodies):
    owner = owner | {"x-request-id": "change-1"}
    venue = (await api.made("/region", owner, bodies.venue(name="before")))["id"]
    path = f"/region/{venue}"
    await api.call("PUT", path, owner, bodies.venue(name="after") | {"width": 241})
    beacon = (await api.made(f"{path}/beacon", owner, bodies.beacon(tags=[])))["id"]
    edit = bodies.beacon(minor=9, tags=["new"])
    await api.call("PUT", f"{path}/beacon/{beacon}", owner, edit)
    await api.made(f"/lieu/{venue}/campaign", owner, bodies.campaign(html="x" * 50_000))
    await api.call("DELETE", f"{path}/beacon/{beacon}", owner)
    assert (await api.call("POST", "/region", owner, {})).status_code == 400  # leaves no entry
    found = await api.read("/audit", owner)
    changes = [f"{entry['action']} {entry['kind']}" for entry in found]
    assert changes[:3] == ["create venue", "edit venue", "create beacon"]
    assert changes[3:] == ["edit beacon", "create campaign", "delete beacon"]
    assert {entry["email"] for entry in found} == {owner["x-service-key"]}
    assert {entry["request"] for entry in found} == {"change-1"}
    assert await api.read("/audit?sort=-id&limit=2", owner) == found[:-3:-1]
    assert [entry["ref"] for entry in found[:3]] == [venue, venue, beacon]
    made, edited, _, tagged, long, deletion = found
    assert (made["before"], made["after"]["width"]) == ({}, VENUE["width"])
    assert edited["before"] == {"name": "before", "width": VENUE["width"]}
    assert edited["after"] == {"name": "after", "width": 241}
    assert (tagged["before"]["tags"], len(tagged["after"]["tags"])) == ([], 1)
    assert len(long["after"]["html"]) == 200
    assert (deletion["after"], deletion["before"]["minor"]) == ({}, 9)


async def test_no_secret_is_reported(api: Harness, owner: Headers, bodies: Bodies):
    parameters = '[{"key": "token", "value": "geheim-1"}]'
    for secret in ("geheim-2", "geheim-3"):
        body = bodies.connector(parameters=parameters, secret=secret, name="c")
        assert (await api.call("PUT", "/connector", owner, body)).status_code == 200
    key = (await api.made("/profile/application", owner, {"name": "a", "type": "b"}))["api_key"]
    whole = (await api.call("GET", "/audit", owner)).text
    assert "geheim" not in whole
    assert key not in whole
    made, edited, application = await api.read("/audit", owner)
    assert (made["after"]["secret"], edited["before"]["secret"]) == ("*****", "*****")
    assert (application["after"]["name"], application["after"]["api_key"]) == ("a", "*****")
    assert "name" not in edited["after"]


async def test_only_entries_of_the_company_that_the_account_may_read(
    api: Harness, owner: Headers, bodies: Bodies
):
    for headers in (owner, await api.account()):
        await api.made("/region", headers, bodies.venue())
        await api.call("PUT", "/connector", headers, bodies.connector())
    found = await api.read("/audit", owner)
    assert {entry["email"] for entry in found} == {owner["x-service-key"]}
    reader = await api.colleague(owner, region=0)
    assert [entry["kind"] for entry in await api.read("/audit", reader)] == ["connector"]


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
    other = f"/region/{(await api.made('/region', owner, bodies.venue()))['id']}"
    for kind in ("beacon", "nfc"):
        taken = await api.made(f"{other}/{kind}", owner, records[f"{place}/{kind}"])
        refused = await api.call("POST", f"{place}/restore", owner)
        assert (refused.status_code, refused.json()["message"][-8:]) == (409, "is taken")
        await api.call("DELETE", f"{other}/{kind}/{taken['id']}", owner)
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
