"""Devices, what they did, and their test flag."""

from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import select

from catalog.models import Account, AuthenticationTrace, DetectionTrace, Device
from tests.integration.api.bodies import Bodies
from tests.integration.api.harness import Harness, Headers
from tests.integration.api.statement_count import counted

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.fixture
async def owner(api: Harness) -> Headers:
    holder = await api.account()
    await api.call("GET", "/profile", holder)
    return holder


@pytest.fixture
async def venue(api: Harness, owner: Headers, bodies: Bodies) -> int:
    return int((await api.call("POST", "/region", owner, bodies.venue())).json()["id"])


async def test_a_device_with_many_traces(api: Harness, owner: Headers, bodies: Bodies, venue: int):
    beacons = [
        (await api.call("POST", f"/region/{venue}/beacon", owner, bodies.beacon())).json()
        for _ in range(5)
    ]
    async with api.database.write.begin() as session:
        company = await session.scalar(
            select(Account.company_id).where(Account.email == owner["x-service-key"])
        )
        device = Device(company_id=company, udid="phone", create_on=NOW, update_on=NOW)
        session.add(device)
        await session.flush()
        session.add_all(
            DetectionTrace(
                device_id=device.id,
                venue_id=venue,
                beacon_id=beacons[number % 5]["id"],
                status="near",
                create_on=NOW.replace(minute=number % 60),
            )
            for number in range(150)
        )
        session.add_all(
            AuthenticationTrace(
                device_id=device.id, application_id=1, create_on=NOW.replace(second=number)
            )
            for number in range(60)
        )
    with counted(api.database) as statements:
        detail = (await api.call("GET", f"/crm/{device.id}", owner)).json()
    assert len(statements) == 6
    assert [len(detail[name]) for name in ("device", "auth", "beacon")] == [1, 60, 100]
    for name in ("auth", "beacon"):
        order = [(item["create_on"], item["id"]) for item in detail[name]]
        assert order == sorted(order, reverse=True)
    assert {item["beacon"]["id"] for item in detail["beacon"]} <= {b["id"] for b in beacons}
    few = (await api.call("GET", f"/crm/{device.id}?limit=3", owner)).json()
    assert few["beacon"] == detail["beacon"][:3]


async def traced(api: Harness, owner: Headers, udid: str, moments: int) -> int:
    """A device with seven traces of each kind at each of so many moments, latest moment first."""
    async with api.database.write.begin() as session:
        company = await session.scalar(
            select(Account.company_id).where(Account.email == owner["x-service-key"])
        )
        device = Device(company_id=company, udid=udid, create_on=NOW, update_on=NOW)
        session.add(device)
        await session.flush()
        for moment in range(moments):
            at = NOW.replace(minute=59 - moment)
            for _ in range(7):
                found = {"device_id": device.id, "create_on": at}
                session.add(DetectionTrace(**found, venue_id=1, beacon_id=1, status="near"))
                session.add(AuthenticationTrace(**found, application_id=1))
                await session.flush()
    return device.id


@pytest.mark.parametrize(("name", "cursor"), [("beacon", "after"), ("auth", "after_auth")])
async def test_traces_page_by_page(api: Harness, owner: Headers, name: str, cursor: str):
    """Each trace once, in the order of the whole, also where many are of one moment."""
    device = await traced(api, owner, "phone", moments=4)
    whole = (await api.call("GET", f"/crm/{device}", owner)).json()
    assert len(whole[name]) == 28
    seen: list[Any] = []
    after = 0
    with counted(api.database) as statements:
        while True:
            path = f"/crm/{device}?limit=5&{cursor}={after}"
            page = (await api.call("GET", path, owner)).json()
            other = "auth" if name == "beacon" else "beacon"
            assert page[other] == whole[other][:5]
            if not page[name]:
                break
            assert len(page[name]) <= 5
            seen += page[name]
            after = page[name][-1]["id"]
    assert seen == whole[name]
    assert len(statements) <= 7 * 7


async def test_no_page_begins_behind_another_devices_trace(api: Harness, owner: Headers):
    other = await api.account()
    mine, theirs = await traced(api, owner, "a", 1), await traced(api, other, "b", 1)
    last = (await api.call("GET", f"/crm/{theirs}", other)).json()["beacon"][0]["id"]
    page = (await api.call("GET", f"/crm/{mine}?after={last}", owner)).json()
    assert (page["beacon"], len(page["auth"])) == ([], 7)
    bad = await api.call("GET", f"/crm/{mine}?after=-1&after_auth=x", owner)
    assert (bad.status_code, set(bad.json()["fields"])) == (400, {"after", "after_auth"})


@pytest.mark.parametrize(
    "body",
    [
        {"test": "1"},
        {"test": True},
        {"device": [{"id": 1, "test": "true"}], "auth": [], "beacon": []},
        {"device": {"test": 1}},
        {"datas": [{"id": "1", "udid": "x", "test": "1"}]},
    ],
)
async def test_the_test_flag(api: Harness, owner: Headers, body: dict[str, Any]):
    async with api.database.write.begin() as session:
        company = await session.scalar(
            select(Account.company_id).where(Account.email == owner["x-service-key"])
        )
        session.add(Device(company_id=company, udid="phone", create_on=NOW, update_on=NOW))
    before = (await api.call("GET", "/crm", owner)).json()
    changed = await api.call("PUT", "/crm/1", owner, body)
    assert changed.status_code == 200
    detail = changed.json()
    assert detail == {"device": detail["device"], "auth": [], "beacon": []}
    (device,) = detail["device"]
    assert device | {"update_on": 0} == before[0] | {"test": True, "update_on": 0}
    assert device["update_on"] > before[0]["update_on"]
    other = await api.call("PUT", "/crm/1", owner, {"device": [{"id": 2, "test": 0}]})
    assert (other.status_code, list(other.json()["fields"])) == (400, ["device"])


async def test_one_is_found_by_its_udid(api: Harness, owner: Headers):
    async with api.database.write.begin() as session:
        for headers in (owner, await api.account()):
            query = select(Account.company_id).where(Account.email == headers["x-service-key"])
            company = await session.scalar(query)
            for udid in ("phone", "other"):
                made = Device(company_id=company, udid=udid, create_on=NOW, update_on=NOW)
                session.add(made)
    found = (await api.call("GET", "/crm?udid=phone", owner)).json()
    assert [each["udid"] for each in found] == ["phone"]
    assert (await api.call("GET", "/crm?udid=nobody", owner)).json() == []
    for wrong in ("a" * 256, "a%00"):
        refused = await api.call("GET", f"/crm?udid={wrong}", owner)
        assert (refused.status_code, list(refused.json()["fields"])) == (400, ["udid"])
