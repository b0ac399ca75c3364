"""The project's own operations: one beacon or geofence, applications, deleting the connector."""

import pytest

from tests.integration.api.bodies import Bodies
from tests.integration.api.harness import Harness, Headers


@pytest.fixture
async def owner(api: Harness) -> Headers:
    return await api.account()


async def test_one_beacon_and_one_geofence(api: Harness, owner: Headers, bodies: Bodies):
    venue = (await api.call("POST", "/region", owner, bodies.venue())).json()["id"]
    for kind, body in (("beacon", bodies.beacon()), ("geofencing", bodies.geofence())):
        path = f"/region/{venue}/{kind}"
        made = (await api.call("POST", path, owner, body)).json()
        found = await api.call("GET", f"{path}/{made['id']}", owner)
        assert (found.status_code, found.json()) == (200, made)
        assert (await api.call("DELETE", f"{path}/{made['id']}", owner)).status_code == 200
        assert (await api.call("GET", f"{path}/{made['id']}", owner)).status_code == 404


async def test_applications(api: Harness, owner: Headers):
    body = {"name": "for phones", "type": "android", "api_key": "chosen by a caller"}
    made = await api.call("POST", "/profile/application", owner, body)
    assert made.status_code == 201
    application = made.json()
    key = application["api_key"]
    assert len(key) >= 32
    assert application == {
        "id": application["id"],
        "name": "for phones",
        "type": "android",
        "api_key": key,
        "api_id": "",
        "active": True,
        "expire_on": None,
    }
    path = f"/profile/application/{application['id']}"
    edit = {"name": "x", "type": "ios", "active": 0, "expire_on": "2027-01-01T00:00:00Z"}
    edited = (await api.call("PUT", path, owner, edit)).json()
    assert (edited["api_key"], edited["active"], edited["type"]) == (key, False, "ios")
    kept = (await api.call("PUT", path, owner, {"name": "y", "type": "ios"})).json()
    assert kept == edited | {"name": "y"}
    assert (await api.call("GET", "/profile/application", owner)).json() == [kept]
    bad = await api.call("POST", "/profile/application", owner, {"name": "", "type": 1})
    assert (bad.status_code, set(bad.json()["fields"])) == (400, {"name", "type"})
    assert (await api.call("DELETE", path, owner)).status_code == 200
    assert (await api.call("DELETE", path, owner)).status_code == 404
    assert (await api.call("GET", "/profile/application", owner)).json() == []


async def test_a_connector_is_deleted(api: Harness, owner: Headers, bodies: Bodies):
    other = await api.account()
    for headers in (owner, other):
        await api.call("PUT", "/connector", headers, bodies.connector())
    assert (await api.call("DELETE", "/connector", owner)).status_code == 200
    for method in ("GET", "DELETE"):
        assert (await api.call(method, "/connector", owner)).status_code == 404
    assert (await api.call("GET", "/connector", other)).status_code == 200
    assert (await api.call("PUT", "/connector", owner, bodies.connector())).status_code == 200
