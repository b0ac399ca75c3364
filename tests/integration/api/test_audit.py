"""Who changed what and when, secrets left out."""

from typing import Any

import pytest
import structlog
from sqlalchemy import select

from api.openapi import examples
from catalog.accounts import set_active
from catalog.models import Account
from tests.integration.api.bodies import Bodies
from tests.integration.api.harness import Harness, Headers


@pytest.fixture
async def owner(api: Harness) -> Headers:
    return await api.account()


async def entries(api: Harness, headers: Headers) -> list[dict[str, Any]]:
    return list((await api.call("GET", "/audit", headers)).json())


async def test_every_kind_of_change(api: Harness, owner: Headers, bodies: Bodies):
    venue = (await api.call("POST", "/region", owner, bodies.venue(name="before"))).json()["id"]
    path = f"/region/{venue}"
    await api.call("PUT", path, owner, bodies.venue(name="after") | {"width": 241})
    beacon = (await api.call("POST", f"{path}/beacon", owner, bodies.beacon(tags=[]))).json()["id"]
    edit = bodies.beacon(minor=9, tags=["new"])
    await api.call("PUT", f"{path}/beacon/{beacon}", owner, edit)
    await api.call("POST", f"{path}/geofencing", owner, bodies.geofence())
    campaign = bodies.campaign(html="x" * 50_000)
    await api.call("POST", f"/lieu/{venue}/campaign", owner, campaign)
    await api.call("DELETE", f"{path}/beacon/{beacon}", owner)
    found = await entries(api, owner)
    assert [(entry["action"], entry["kind"]) for entry in found] == [
        ("create", "venue"),
        ("edit", "venue"),
        ("create", "beacon"),
        ("edit", "beacon"),
        ("create", "geofence"),
        ("create", "campaign"),
        ("delete", "beacon"),
    ]
    assert {entry["email"] for entry in found} == {owner["x-service-key"]}
    assert [entry["ref"] for entry in found[:3]] == [venue, venue, beacon]
    made, edited, _, tagged, _, long, deletion = found
    assert made["before"] == {}
    assert made["after"]["width"] == examples.VENUE["width"]
    assert edited["before"]["name"].startswith("before")
    assert edited["after"]["name"].startswith("after")
    assert edited["before"]["width"] == examples.VENUE["width"]
    assert edited["before"].keys() == edited["after"].keys() == {"name", "width"}
    assert (tagged["before"]["tags"], len(tagged["after"]["tags"])) == ([], 1)
    assert len(long["after"]["html"]) == 200
    assert (deletion["after"], deletion["before"]["minor"]) == ({}, 9)


async def test_failed_and_empty_changes_leave_no_entry(
    api: Harness, owner: Headers, bodies: Bodies
):
    body = bodies.venue()
    venue = (await api.call("POST", "/region", owner, body)).json()["id"]
    taken = bodies.beacon()
    path = f"/region/{venue}/beacon"
    await api.call("POST", path, owner, taken)
    before = await entries(api, owner)
    with structlog.testing.capture_logs() as logs:
        assert (await api.call("POST", path, owner, taken)).status_code == 409
        assert (await api.call("PUT", f"/region/{venue}", owner, body)).status_code == 200
        assert (await api.call("POST", "/region", owner, {})).status_code == 400
    assert await entries(api, owner) == before
    assert [line for line in logs if line["event"] == "catalog changed"] == []


async def test_no_secret_is_reported(api: Harness, owner: Headers, bodies: Bodies):
    parameters = '[{"key": "token", "value": "geheim-1"}]'
    for secret in ("geheim-2", "geheim-3"):
        body = bodies.connector(parameters=parameters, secret=secret, name="c")
        assert (await api.call("PUT", "/connector", owner, body)).status_code == 200
    body = {"name": "a", "type": "b"}
    key = (await api.call("POST", "/profile/application", owner, body)).json()
    whole = (await api.call("GET", "/audit", owner)).text
    assert "geheim" not in whole
    assert key["api_key"] not in whole
    made, edited, application = await entries(api, owner)
    assert application["after"] == body | {
        "api_key": "*****",
        "api_id": "",
        "active": True,
        "expire_on": None,
    }
    assert (made["after"]["secret"], edited["before"]["secret"]) == ("*****", "*****")
    assert "name" not in edited["after"]


async def test_only_entries_of_the_company_that_the_account_may_read(
    api: Harness, owner: Headers, bodies: Bodies
):
    other = await api.account()
    for headers in (owner, other):
        await api.call("POST", "/region", headers, bodies.venue())
        await api.call("PUT", "/connector", headers, bodies.connector())
    assert {entry["email"] for entry in await entries(api, owner)} == {owner["x-service-key"]}
    async with api.database.read() as session:
        query = select(Account).where(Account.email == owner["x-service-key"])
        account = (await session.scalars(query)).one()
    company = await _company(api, account)
    reader = await api.account(company, region=0)
    assert [entry["kind"] for entry in await entries(api, reader)] == ["connector"]


async def _company(api: Harness, account: Account) -> Any:
    from catalog.models import Company

    async with api.database.read() as session:
        return await session.get_one(Company, account.company_id)


async def test_a_log_line_and_no_author_elsewhere(api: Harness, owner: Headers, bodies: Bodies):
    headers = owner | {"x-request-id": "mine"}
    with structlog.testing.capture_logs() as logs:
        venue = (await api.call("POST", "/region", headers, bodies.venue())).json()["id"]
        # Not in a request: the command line.
        await set_active(api.database, owner["x-service-key"], active=True)
    (line,) = [line for line in logs if line["event"] == "catalog changed"]
    (entry,) = await entries(api, owner)
    assert (line["operation"], line["id"]) == ("create venue", venue)
    assert (line["account"], entry["request"]) == (entry["account_id"], "mine")


async def test_the_newest_first(api: Harness, owner: Headers, bodies: Bodies):
    for _ in range(5):
        await api.call("POST", "/region", owner, bodies.venue())
    other = await api.account()
    await api.call("POST", "/region", other, bodies.venue())
    oldest_first = await entries(api, owner)
    newest = (await api.call("GET", f"/audit?before={2**63 - 1}&limit=2", owner)).json()
    assert newest == oldest_first[:-3:-1]
    rest = (await api.call("GET", f"/audit?before={newest[-1]['id']}", owner)).json()
    assert newest + rest == oldest_first[::-1]
    behind = f"/audit?before={newest[0]['id']}&after={oldest_first[1]['id']}"
    assert (await api.call("GET", behind, owner)).json() == oldest_first[3:1:-1]
