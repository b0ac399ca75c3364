"""POST of a list: all records or none, faults by index."""

from typing import Any

import pytest
from sqlalchemy import func, select

from catalog.models import AuditEntry, Outbox, Tag
from tests.api.harness import Bodies, Harness, Headers

TAGS = [{"name": "new"}, "other"]


@pytest.mark.parametrize("kind", ["beacon", "geofencing", "nfc", "qrcode"])
async def test_all_are_made(api: Harness, owner: Headers, bodies: Bodies, venue: int, kind: str):
    def body(number: int) -> dict[str, Any]:
        if kind == "beacon":
            return bodies.beacon(minor=number, tags=TAGS)
        if kind == "geofencing":
            return bodies.geofence(tags=TAGS)
        return {"name": f"tag {number}", "value": str(number), "active": True, "tags": TAGS}

    path = f"/region/{venue}/{kind}"
    given = [body(number) for number in range(600)]
    answer = await api.call("POST", path, owner, given)
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert [each["name"] for each in made] == [each["name"] for each in given]
    assert {tag["name"] for tag in made[-1]["tags"]} == {"new", "other"}
    assert await api.read(path, owner) == made
    async with api.database.read() as session:
        assert await session.scalar(select(func.count(Tag.id))) == 2
        assert await session.scalar(select(func.count(AuditEntry.id))) == 601
        assert len((await session.scalars(select(Outbox.id))).all()) >= 600


async def refused(api: Harness, owner: Headers, path: str, body: Any, status: int = 400) -> Any:
    answer = await api.call("POST", path, owner, body)
    assert answer.status_code == status, answer.text
    return answer.json()["fields"]


async def test_one_fault_refuses_all(api: Harness, owner: Headers, bodies: Bodies, venue: int):
    path = f"/region/{venue}/beacon"
    good = bodies.beacon(minor=1)
    bad = [good, good | {"minor": 2, "name": ""}, {"name": "x"}, good | {"minor": "a"}]
    found = await refused(api, owner, path, bad)
    assert [each for each in found if not each.startswith("[2]")] == ["[1].name", "[3].minor"]
    assert "[2].uuid" in found
    unknown = [good, bodies.beacon(minor=2, tags=[{"id": 999}])]
    assert [*await refused(api, owner, path, unknown)] == ["[1].tags[0]"]
    again = [good, bodies.beacon(minor=2), bodies.beacon(minor=1)]
    assert await refused(api, owner, path, again, 409) == {"[2].minor": "the same as [0]"}
    assert await api.read(path, owner) == []
    await api.made(path, owner, good)
    two = [bodies.beacon(minor=2), good]
    assert await refused(api, owner, path, two, 409) == {"[1].minor": "taken"}
    assert len(await api.read(path, owner)) == 1


async def test_a_value_of_another_company_is_free(
    api: Harness, owner: Headers, bodies: Bodies, venue: int
):
    tag = {"name": "t", "value": "1", "active": True}
    assert (await api.call("POST", f"/region/{venue}/nfc", owner, [tag])).status_code == 201
    assert (await api.call("POST", f"/region/{venue}/qrcode", owner, [tag])).status_code == 201
    found = await refused(api, owner, f"/region/{venue}/nfc", [tag], 409)
    assert found == {"[0].value": "taken"}
    other = await api.account()
    there = (await api.made("/region", other, bodies.venue()))["id"]
    assert (await api.call("POST", f"/region/{there}/nfc", other, [tag])).status_code == 201


@pytest.mark.parametrize("body", [[], [3], [{}] * 1001, "a"])
async def test_no_list(api: Harness, owner: Headers, venue: int, body: Any):
    assert [*await refused(api, owner, f"/region/{venue}/nfc", body)] == ["body"]
    assert [*await refused(api, owner, "/region", body)] == ["body"]
