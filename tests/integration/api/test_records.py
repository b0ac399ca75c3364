"""Records are created, read, changed and deleted."""

from typing import Any

import pytest

from tests.integration.api.bodies import Bodies
from tests.integration.api.harness import Harness, Headers

DONE = {"status": "success", "code": 200}


@pytest.fixture
async def owner(api: Harness) -> Headers:
    return await api.account()


@pytest.fixture
async def venue(api: Harness, owner: Headers, bodies: Bodies) -> int:
    created = await api.call("POST", "/region", owner, bodies.venue())
    return int(created.json()["id"])


@pytest.mark.parametrize("path", ["/region", "/venue"])
async def test_venues(api: Harness, owner: Headers, bodies: Bodies, path: str):
    body = bodies.venue(time_zone=None)
    created = await api.call("POST", path, owner, body)
    assert created.status_code == 201
    record = created.json()
    assert record == body | {"id": record["id"], "time_zone": ""}
    where = f"/region/{record['id']}"
    assert (await api.call("GET", where, owner)).json() == record
    assert (await api.call("GET", "/region", owner)).json() == [record]
    changed = {"name": "Other", "address": "There", "active": "0", "time_zone": "Asia/Tokyo"}
    edited = await api.call("PUT", where, owner, changed)
    assert edited.status_code == 200
    assert edited.json() == record | changed | {"active": False}
    deleted = await api.call("DELETE", where, owner)
    assert (deleted.status_code, deleted.json()) == (200, DONE)
    for method in ("GET", "DELETE"):
        assert (await api.call(method, where, owner)).status_code == 404


async def test_beacons(api: Harness, owner: Headers, bodies: Bodies, venue: int):
    where = f"/region/{venue}/beacon"
    body = bodies.beacon(tags=[{"name": "one"}, "two", {"name": "one"}])
    created = await api.call("POST", where, owner, body)
    assert created.status_code == 201
    record = created.json()
    tags = record["tags"]
    assert [tag["name"] for tag in tags] == ["one", "two"]
    assert record == body | {"id": record["id"], "tags": tags}
    assert (await api.call("GET", where, owner)).json() == [record]
    required = ("name", "uuid", "major", "minor", "active", "proximity")
    changed = {name: body[name] for name in required} | {"proximity": "far"}
    edited = await api.call("PUT", f"{where}/{record['id']}", owner, changed)
    assert (edited.status_code, edited.json()) == (200, record | {"proximity": "far"})
    retagged = changed | {"tags": [{"id": tags[1]["id"]}, {"name": "three"}]}
    edited = await api.call("PUT", f"{where}/{record['id']}", owner, retagged)
    assert [tag["name"] for tag in edited.json()["tags"]] == ["two", "three"]
    emptied = await api.call("PUT", f"{where}/{record['id']}", owner, changed | {"color": None})
    assert emptied.json()["color"] == ""
    deleted = await api.call("DELETE", f"{where}/{record['id']}", owner)
    assert (deleted.status_code, deleted.json()) == (200, DONE)
    assert (await api.call("GET", where, owner)).json() == []


async def test_geofences(api: Harness, owner: Headers, bodies: Bodies, venue: int):
    where = f"/region/{venue}/geofencing"
    body = bodies.geofence()
    created = await api.call("POST", where, owner, body)
    assert created.status_code == 201
    record = created.json()
    assert record == body | {"id": record["id"]}
    assert (await api.call("GET", where, owner)).json() == [record]
    changed = body | {"radius": "20", "active": False}
    edited = await api.call("PUT", f"{where}/{record['id']}", owner, changed)
    assert (edited.status_code, edited.json()["radius"]) == (200, 20)
    deleted = await api.call("DELETE", f"{where}/{record['id']}", owner)
    assert (deleted.status_code, deleted.json()) == (200, DONE)
    assert (await api.call("GET", where, owner)).json() == []


async def test_campaigns(api: Harness, owner: Headers, bodies: Bodies, venue: int):
    beacon = (await api.call("POST", f"/region/{venue}/beacon", owner, bodies.beacon())).json()
    fences = f"/region/{venue}/geofencing"
    fence = (await api.call("POST", fences, owner, bodies.geofence())).json()
    where = f"/lieu/{venue}/campaign"
    body = bodies.campaign(
        beacons=[beacon], geofencings=[{"id": fence["id"]}], nfcs=[{"a": [1]}], hash="h1"
    )
    created = await api.call("POST", where, owner, body)
    assert created.status_code == 201
    record = created.json()
    optional = dict.fromkeys(("template", "html", "background", "color"), "")
    assert record == body | optional | {
        "id": record["id"],
        "tags": beacon["tags"],
        "geofencings": [fence],
        "qrcodes": [],
    }
    assert (await api.call("GET", f"{where}/{record['id']}", owner)).json() == record
    assert (await api.call("GET", where, owner)).json() == [record]
    # What was read may be sent back.
    again = await api.call("PUT", f"{where}/{record['id']}", owner, record)
    assert (again.status_code, again.json()) == (200, record)
    deleted = await api.call("DELETE", f"{where}/{record['id']}", owner)
    assert (deleted.status_code, deleted.json()) == (200, DONE)
    assert (await api.call("GET", f"{where}/{record['id']}", owner)).status_code == 404


REQUIRED_TO_EDIT = ("name", "push", "title", "cache", "start", "end", "start_time", "end_time")


async def test_an_edit_leaves_what_is_not_given(
    api: Harness, owner: Headers, bodies: Bodies, venue: int
):
    where = f"/lieu/{venue}/campaign"
    body = bodies.campaign(tuesday=False, html="<p>", color="red")
    record = (await api.call("POST", where, owner, body)).json()
    changed = {name: body[name] for name in REQUIRED_TO_EDIT}
    changed |= {"format": "html", "active": 0, "thuesday": "1"}
    edited = await api.call("PUT", f"{where}/{record['id']}", owner, changed)
    assert edited.status_code == 200
    assert edited.json() == record | {"format": "html", "active": False, "tuesday": True}


async def test_a_campaign_may_target_by_triple(
    api: Harness, owner: Headers, bodies: Bodies, venue: int
):
    beacon = (await api.call("POST", f"/region/{venue}/beacon", owner, bodies.beacon())).json()
    triple = {name: beacon[name] for name in ("uuid", "major", "minor")}
    body = bodies.campaign(beacons=[triple, beacon["id"]], format="connector", url=None)
    created = (await api.call("POST", f"/lieu/{venue}/campaign", owner, body)).json()
    assert created["beacons"] == [beacon]


async def test_deleting_a_venue_deletes_its_records(
    api: Harness, owner: Headers, bodies: Bodies, venue: int
):
    inside = {
        f"/region/{venue}/beacon": bodies.beacon(),
        f"/region/{venue}/geofencing": bodies.geofence(),
        f"/lieu/{venue}/campaign": bodies.campaign(),
    }
    for path, body in inside.items():
        assert (await api.call("POST", path, owner, body)).status_code == 201
    assert (await api.call("DELETE", f"/region/{venue}", owner)).status_code == 200
    for path in inside:
        assert (await api.call("GET", path, owner)).status_code == 404


async def test_connector(api: Harness, owner: Headers, bodies: Bodies):
    assert (await api.call("GET", "/connector", owner)).status_code == 404
    body = bodies.connector(auth="GET", method="post", secret="whsec_1234567890")
    made = await api.call("PUT", "/connector", owner, body)
    assert made.status_code == 200
    record = made.json()
    expected = {"id": record["id"], "auth": "get", "method": "POST", "signed": True}
    assert record == {name: body[name] for name in ("name", "url", "parameters")} | expected
    assert (await api.call("GET", "/connector", owner)).json() == record
    changed = bodies.connector(secret=None, parameters=[{"key": "k", "value": "v"}])
    edited = (await api.call("PUT", "/connector", owner, changed)).json()
    assert edited["parameters"] == '[{"key": "k", "value": "v"}]'
    assert (edited["id"], edited["signed"]) == (record["id"], True)
    unsigned = await api.call("PUT", "/connector", owner, changed | {"secret": None})
    assert unsigned.json()["signed"] is False


@pytest.mark.parametrize(
    "url", ["http://10.0.0.1/", "http://[::1]/", "http://169.254.169.254/", "https://8.8.8.8:22/"]
)
async def test_a_connector_may_not_lead_inside(
    api: Harness, owner: Headers, bodies: Bodies, url: str
):
    refused = await api.call("PUT", "/connector", owner, bodies.connector(url=url))
    assert (refused.status_code, list(refused.json()["fields"])) == (400, ["url"])


async def test_lists_go_on_after_an_id(api: Harness, owner: Headers, bodies: Bodies, venue: int):
    where = f"/region/{venue}/beacon"
    ids = [(await api.call("POST", where, owner, bodies.beacon())).json()["id"] for _ in range(5)]

    async def listed(query: str) -> list[Any]:
        found = (await api.call("GET", f"{where}{query}", owner)).json()
        return [record["id"] for record in found]

    assert await listed("") == ids
    assert await listed("?limit=2") == ids[:2]
    assert await listed(f"?limit=2&after={ids[1]}") == ids[2:4]
    assert await listed(f"?after={ids[4]}") == []
