"""POST of a list: all records or none, faults by index."""

from typing import Any

import pytest
from sqlalchemy import func, select

from catalog.models import AuditEntry, Tag
from tests.api.harness import Bodies, Harness, Headers

TAGS = [{"name": "new"}, "other"]


@pytest.mark.parametrize("kind", ["beacon", "geofencing", "nfc", "qrcode"])
async def test_all_are_made(api: Harness, owner: Headers, bodies: Bodies, venue: int, kind: str):
    make = {"beacon": bodies.beacon, "geofencing": bodies.geofence}.get(kind, bodies.tag)
    path, given = f"/region/{venue}/{kind}", [make(tags=TAGS) for _ in range(600)]
    answer = await api.call("POST", path, owner, given)
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert [each["name"] for each in made] == [each["name"] for each in given]
    assert {tag["name"] for tag in made[-1]["tags"]} == {"new", "other"}
    assert await api.read(path, owner) == made
    async with api.database.read() as session:
        assert await session.scalar(select(func.count(Tag.id))) == 2
        assert await session.scalar(select(func.count(AuditEntry.id))) == 601


async def test_one_fault_refuses_all(api: Harness, owner: Headers, bodies: Bodies, venue: int):
    path = f"/region/{venue}/beacon"
    good = bodies.beacon(minor=1)
    bad = [good, good | {"minor": 2, "name": ""}, good | {"minor": "a"}]
    assert [*await api.faults("POST", path, owner, bad)] == ["[1].name", "[2].minor"]
    unknown = [good, bodies.beacon(minor=2, tags=[{"id": 999}])]
    assert [*await api.faults("POST", path, owner, unknown)] == ["[1].tags[0]"]
    again = [good, bodies.beacon(minor=2), bodies.beacon(minor=1)]
    assert await api.faults("POST", path, owner, again, 409) == {"[2].minor": "the same as [0]"}
    assert await api.read(path, owner) == []
    await api.made(path, owner, good)
    two = [bodies.beacon(minor=2), good]
    assert await api.faults("POST", path, owner, two, 409) == {"[1].minor": "taken"}
    assert len(await api.read(path, owner)) == 1


async def test_a_value_is_unique_in_company_and_kind(
    api: Harness, owner: Headers, bodies: Bodies, venue: int
):
    tag, other = bodies.tag(), await api.account()
    there = (await api.made("/region", other, bodies.venue()))["id"]
    path = f"/region/{venue}/nfc"
    for where, who in (
        (path, owner),
        (f"/region/{venue}/qrcode", owner),
        (f"/region/{there}/nfc", other),
    ):
        assert (await api.call("POST", where, who, [tag])).status_code == 201
    assert await api.faults("POST", path, owner, [tag], 409) == {"[0].value": "taken"}
    taken = await api.call("POST", path, owner, tag)
    assert (taken.status_code, taken.json()["message"]) == (409, "the value is taken")
    second = await api.made(path, owner, bodies.tag())
    assert (await api.call("PUT", f"{path}/{second['id']}", owner, tag)).status_code == 409


@pytest.mark.parametrize("body", [[], [3], [{}] * 1001])
async def test_no_list(api: Harness, owner: Headers, venue: int, body: Any):
    assert [*await api.faults("POST", f"/region/{venue}/nfc", owner, body)] == ["body"]
    assert [*await api.faults("POST", "/region", owner, body)] == ["body"]
