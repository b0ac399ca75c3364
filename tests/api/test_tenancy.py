"""No operation crosses from one company to another, and each needs its area's level."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import select

from catalog.inputs import AREAS
from catalog.models import Base, Device, Session
from tests.api.harness import Bodies, Harness, Headers, operations
from tests.servers.schema import on_sqlite

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
# By what a path holds, the first that fits; the level is 1 for GET, else 2.
AREA_OF = {
    "/statistics": "analytic",
    "/beacon": "beacon",
    "/geofencing": "region",
    "/campaign": "campaign",
    "/nfc": "nfc",
    "/qrcode": "qrcode",
    "/region": "region",
    "/venue": "region",
    "/connector": "connector",
    "/crm": "crm",
    "/profile": "profile",
    "/audit": "profile",
    "/realtime": "realtime",
}
# Of the account itself: a session is enough.
OWN = ("DELETE /auth", "PUT /profile/password")
# POST operations that change nothing.
QUESTIONS = ("POST /lieu/{id}/campaign/{uid}/explain",)


@on_sqlite
@pytest.mark.parametrize(("level", "others"), [(0, 2), (1, 2), (2, 0)])
async def test_every_operation_needs_its_area(api: Harness, level: int, others: int):
    holders = {
        area: await api.account(None, **(dict.fromkeys(AREAS, others) | {area: level}))
        for area in set(AREA_OF.values())
    }
    for operation in operations(api.app):
        if str(operation) in OWN:
            holder = await api.account(None, **dict.fromkeys(AREAS, 0))
            answer = await api.call(operation.method, operation.path, holder, operation.body)
            assert answer.status_code in (200, 400), answer.text
            continue
        area = next(area for part, area in AREA_OF.items() if part in operation.path)
        path = operation.path.format(id=1, uid=1)
        answer = await api.call(operation.method, path, holders[area], operation.body)
        reads = operation.method == "GET" or str(operation) in QUESTIONS
        needed = 1 if reads else 2
        assert (answer.status_code == 403) == (level < needed), f"{operation}: {answer.text}"
        if level < needed:
            message = f"needs level {needed} in the permission area {area}"
            assert answer.json() == {"status": "error", "message": message, "code": 403}


@on_sqlite
async def test_every_operation_needs_a_session(api: Harness, owner: Headers):
    other = await api.account()
    bad: tuple[Headers, ...] = (
        {},
        owner | {"x-service-token": "guess"},
        owner | {"x-service-key": other["x-service-key"]},
    )
    for operation in operations(api.app):
        for headers in bad:
            path = operation.path.format(id=1, uid=1)
            answer = await api.call(operation.method, path, headers, operation.body)
            assert answer.status_code == 401, operation
            assert answer.json() == {"status": "error", "message": "no session", "code": 401}


@dataclass
class Holder:
    """A company with one record of every kind."""

    api: Harness
    headers: Headers
    ids: dict[str, int] = field(default_factory=dict)

    async def fill(self, bodies: Bodies) -> "Holder":
        async def made(path: str, body: Any) -> int:
            return int((await self.api.made(path, self.headers, body))["id"])

        venue = await made("/region", bodies.venue())
        company = await self.api.company_of(self.headers)
        device = Device(company_id=company, udid="phone", create_on=NOW, update_on=NOW)
        await self.api.add(device)
        self.ids = {
            "region": venue,
            "beacon": await made(f"/region/{venue}/beacon", bodies.beacon()),
            "geofencing": await made(f"/region/{venue}/geofencing", bodies.geofence()),
            "nfc": await made(f"/region/{venue}/nfc", bodies.tag()),
            "qrcode": await made(f"/region/{venue}/qrcode", bodies.tag()),
            "campaign": await made(f"/lieu/{venue}/campaign", bodies.campaign()),
            "application": await made("/profile/application", {"name": "app", "type": "ios"}),
            "crm": device.id,
        }
        await self.api.call("PUT", "/connector", self.headers, bodies.connector())
        return self

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


async def everything(api: Harness) -> dict[str, list[str]]:
    """Every row of every table, except sessions."""
    async with api.database.read() as session:
        return {
            table.name: sorted(map(repr, (await session.execute(select(table))).all()))
            for table in Base.metadata.sorted_tables
            if table.name != Session.__tablename__
        }


async def test_no_operation_reaches_another_companys_record(
    api: Harness, ours: Holder, theirs: Holder, bodies: Bodies
):
    """Neither through its own path, nor through a venue of ours; nor ours through another venue."""
    other = (await api.made("/region", ours.headers, bodies.venue()))["id"]
    before = await everything(api)
    tried = [operation for operation in operations(api.app) if "{" in operation.path]
    assert len(tried) == 47
    for operation in tried:
        paths = [theirs.path(operation.path)]
        if "{uid}" in operation.path:
            kind = operation.path.split("/")[3]
            paths.append(operation.path.format(id=ours.ids["region"], uid=theirs.ids[kind]))
            paths.append(operation.path.format(id=other, uid=ours.ids[kind]))
        for path in paths:
            answer = await api.call(operation.method, path, ours.headers, operation.body)
            assert answer.status_code == 404, f"{operation}: {answer.text}"
            assert answer.json()["status"] == "error"
    assert await everything(api) == before


@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_a_campaign_ties_nothing_of_another_company(
    api: Harness, ours: Holder, theirs: Holder, bodies: Bodies, method: str
):
    where = f"/lieu/{theirs.ids['region']}/campaign/{theirs.ids['campaign']}"
    path = f"/lieu/{ours.ids['region']}/campaign"
    path += f"/{ours.ids['campaign']}" if method == "PUT" else ""
    kinds = ("beacon", "geofencing", "nfc", "qrcode")
    ids = {f"{kind}s": theirs.ids[kind] for kind in kinds}
    ids["tags"] = (await api.read(where, theirs.headers))["tags"][0]["id"]
    for kind, number in ids.items():
        body = bodies.campaign(**{kind: [{"id": number}]})
        assert [*await api.faults(method, path, ours.headers, body)] == [f"{kind}[0]"]


async def test_lists_and_profiles_hold_only_ones_own(api: Harness, ours: Holder, theirs: Holder):
    for path in ("/region", "/crm", "/profile/application", "/profile", "/connector"):
        mine, other = await api.read(path, ours.headers), await api.read(path, theirs.headers)
        own = [item["id"] for item in (mine if isinstance(mine, list) else [mine])]
        foreign = [item["id"] for item in (other if isinstance(other, list) else [other])]
        assert not set(own) & set(foreign), path
        assert len(own) == 1
    colleague = await api.colleague(ours.headers)
    assert await api.read("/region", colleague) == await api.read("/region", ours.headers)
