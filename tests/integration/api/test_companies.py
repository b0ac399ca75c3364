"""No operation on any record crosses from one company to another."""

from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import select

from catalog.models import (
    AccessState,
    Account,
    AuthenticationTrace,
    Base,
    Company,
    DetectionTrace,
    Device,
    Session,
)
from tests.integration.api.bodies import Bodies
from tests.integration.api.harness import Harness, Headers
from tests.integration.api.operations import operations

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


class Holder:
    """A company with one record of every kind."""

    def __init__(self, api: Harness, headers: Headers) -> None:
        self.api = api
        self.headers = headers
        self.ids: dict[str, int] = {}

    async def fill(self, bodies: Bodies) -> "Holder":
        self.ids["region"] = await self._made("/region", bodies.venue())
        venue = self.ids["region"]
        self.ids["beacon"] = await self._made(f"/region/{venue}/beacon", bodies.beacon())
        self.ids["geofencing"] = await self._made(f"/region/{venue}/geofencing", bodies.geofence())
        self.ids["campaign"] = await self._made(f"/lieu/{venue}/campaign", bodies.campaign())
        application = {"name": "app", "type": "ios"}
        self.ids["application"] = await self._made("/profile/application", application)
        await self.api.call("PUT", "/connector", self.headers, bodies.connector())
        async with self.api.database.write.begin() as session:
            account = await session.scalar(
                select(Account).where(Account.email == self.headers["x-service-key"])
            )
            assert account is not None
            device = Device(
                company_id=account.company_id, udid="phone", create_on=NOW, update_on=NOW
            )
            session.add(device)
            await session.flush()
            self.ids["crm"] = device.id
            session.add(
                DetectionTrace(
                    device_id=device.id,
                    venue_id=venue,
                    beacon_id=self.ids["beacon"],
                    status="near",
                    create_on=NOW,
                )
            )
        return self

    async def _made(self, path: str, body: Any) -> int:
        created = await self.api.call("POST", path, self.headers, body)
        assert created.status_code == 201, created.text
        return int(created.json()["id"])

    def path(self, template: str) -> str:
        """A template with this company's ids."""
        words = [part for part in template.split("/") if "{" not in part and part]
        kind = next(word for word in reversed(words) if word in self.ids)
        number = self.ids[kind if words[0] in ("crm", "profile") else "region"]
        return template.format(id=number, uid=self.ids[kind])


@pytest.fixture
async def ours(api: Harness, bodies: Bodies) -> Holder:
    return await Holder(api, await api.account()).fill(bodies)


@pytest.fixture
async def theirs(api: Harness, bodies: Bodies) -> Holder:
    return await Holder(api, await api.account()).fill(bodies)


async def everything(api: Harness) -> dict[str, list]:
    """Every row of every table, except sessions."""
    left_out = {Session.__tablename__, AccessState.__tablename__}
    async with api.database.read() as session:
        return {
            table.name: sorted(map(repr, (await session.execute(select(table))).all()))
            for table in Base.metadata.sorted_tables
            if table.name not in left_out
        }


async def test_no_operation_reaches_another_companys_record(
    api: Harness, ours: Holder, theirs: Holder
):
    before = await everything(api)
    tried = [operation for operation in operations(api.app) if "{" in operation.path]
    assert len(tried) == 27
    for operation in tried:
        path = theirs.path(operation.path)
        answer = await api.call(operation.method, path, ours.headers, operation.body)
        assert answer.status_code == 404, f"{operation}: {answer.text}"
        assert answer.json()["status"] == "error"
    assert await everything(api) == before


async def test_no_operation_reaches_another_companys_record_through_a_venue(
    api: Harness, ours: Holder, theirs: Holder
):
    before = await everything(api)
    tried = [operation for operation in operations(api.app) if "{uid}" in operation.path]
    assert len(tried) == 10
    for operation in tried:
        kind = operation.path.split("/")[3]
        path = operation.path.format(id=ours.ids["region"], uid=theirs.ids[kind])
        answer = await api.call(operation.method, path, ours.headers, operation.body)
        assert answer.status_code == 404, f"{operation}: {answer.text}"
    assert await everything(api) == before


async def test_a_record_belongs_to_one_venue(api: Harness, ours: Holder, bodies: Bodies):
    other = (await api.call("POST", "/region", ours.headers, bodies.venue())).json()["id"]
    for operation in operations(api.app):
        if "{uid}" in operation.path:
            kind = operation.path.split("/")[3]
            path = operation.path.format(id=other, uid=ours.ids[kind])
            answer = await api.call(operation.method, path, ours.headers, operation.body)
            assert answer.status_code == 404, f"{operation}: {answer.text}"


@pytest.mark.parametrize("kind", ["beacons", "geofencings", "tags"])
@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_a_campaign_ties_nothing_of_another_company(
    api: Harness, ours: Holder, theirs: Holder, bodies: Bodies, kind: str, method: str
):
    where = f"/lieu/{theirs.ids['region']}/campaign/{theirs.ids['campaign']}"
    tag = (await api.call("GET", where, theirs.headers)).json()["tags"][0]["id"]
    number = {
        "beacons": theirs.ids["beacon"],
        "geofencings": theirs.ids["geofencing"],
        "tags": tag,
    }[kind]
    path = f"/lieu/{ours.ids['region']}/campaign"
    path += f"/{ours.ids['campaign']}" if method == "PUT" else ""
    body = bodies.campaign(**{kind: [{"id": number}]})
    answer = await api.call(method, path, ours.headers, body)
    assert (answer.status_code, list(answer.json()["fields"])) == (400, [f"{kind}[0]"])


async def test_lists_and_profiles_hold_only_ones_own(api: Harness, ours: Holder, theirs: Holder):
    for path in ("/region", "/crm", "/profile/application", "/profile", "/connector"):
        mine = (await api.call("GET", path, ours.headers)).json()
        other = (await api.call("GET", path, theirs.headers)).json()
        own = [item["id"] for item in (mine if isinstance(mine, list) else [mine])]
        foreign = [item["id"] for item in (other if isinstance(other, list) else [other])]
        assert not set(own) & set(foreign), path
        assert len(own) == 1


async def test_a_trace_shows_nothing_of_another_company(api: Harness, ours: Holder, theirs: Holder):
    """A deleted beacon whose id belongs to another company now."""
    async with api.database.write.begin() as session:
        session.add(
            DetectionTrace(
                device_id=ours.ids["crm"],
                venue_id=theirs.ids["region"],
                beacon_id=theirs.ids["beacon"],
                status="far",
                create_on=NOW.replace(hour=13),
                ip="192.0.2.1",
            )
        )
        session.add(AuthenticationTrace(device_id=ours.ids["crm"], application_id=1, create_on=NOW))
    detail = (await api.call("GET", f"/crm/{ours.ids['crm']}", ours.headers)).json()
    newest, oldest = detail["beacon"]
    assert newest | {"id": 0} == {
        "lieu": "",
        "lieu_id": theirs.ids["region"],
        "id": 0,
        "beacon": {"id": theirs.ids["beacon"]},
        "status": "far",
        "create_on": "2026-11-20T13:00:00+0000",
        "ip": "192.0.2.1",
    }
    assert oldest["beacon"]["id"] == ours.ids["beacon"]
    assert oldest["beacon"]["name"].startswith("Study desk Z")
    assert oldest["lieu"].startswith("Library, Universitat Jaume I")
    (auth,) = detail["auth"]
    assert auth | {"id": 0} == {"id": 0, "create_on": "2026-11-20T12:00:00+0000", "ip": ""}


async def test_the_triple_is_taken_also_by_another_company(
    api: Harness, ours: Holder, theirs: Holder, bodies: Bodies
):
    taken = (
        await api.call("GET", f"/region/{theirs.ids['region']}/beacon", theirs.headers)
    ).json()[0]
    body = bodies.beacon(minor=taken["minor"])
    where = f"/region/{ours.ids['region']}/beacon"
    for method, path in (("POST", where), ("PUT", f"{where}/{ours.ids['beacon']}")):
        answer = await api.call(method, path, ours.headers, body)
        assert (answer.status_code, answer.json()["code"]) == (409, 409)


async def test_accounts_of_a_company_share_its_records(api: Harness, ours: Holder):
    async with api.database.read() as session:
        company = await session.scalar(select(Company).order_by(Company.id).limit(1))
    colleague = await api.account(company)
    mine = await api.call("GET", "/region", ours.headers)
    assert (await api.call("GET", "/region", colleague)).json() == mine.json()
