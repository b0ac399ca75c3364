"""A deleted record is hidden from its account holder at once, except in past data."""

import json
from datetime import UTC, date, datetime
from typing import Any

import pytest
from sqlalchemy import select

from catalog.load import load_document
from catalog.models import DetectionTrace, Device, Statistic, Venue
from catalog.soft_deletion import with_deleted
from tests.api.harness import Bodies, Harness, Headers

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
KINDS = ("venue", "beacon", "geofence", "campaign")


class Place:
    """A venue with a beacon, a geofence and a campaign of both, created through the interface."""

    def __init__(self, api: Harness, owner: Headers) -> None:
        self.api = api
        self.owner = owner
        self.made: dict[str, dict[str, Any]] = {}
        self.lists: dict[str, str] = {}

    async def fill(self, bodies: Bodies) -> "Place":
        async def make(kind: str, path: str, body: Any) -> None:
            self.lists[kind] = path
            self.made[kind] = await self.api.made(path, self.owner, body)

        await make("venue", "/region", bodies.venue())
        venue = self.made["venue"]["id"]
        await make("beacon", f"/region/{venue}/beacon", bodies.beacon(tags=["door"]))
        await make("geofence", f"/region/{venue}/geofencing", bodies.geofence())
        ids = {name: [self.made[name]["id"]] for name in ("beacon", "geofence")}
        links = {"beacons": ids["beacon"], "geofencings": ids["geofence"], "tags": ["door"]}
        await make("campaign", f"/lieu/{venue}/campaign", bodies.campaign(**links))
        return self

    def path(self, kind: str) -> str:
        return f"{self.lists[kind]}/{self.made[kind]['id']}"

    async def delete(self, kind: str) -> None:
        answer = await self.api.call("DELETE", self.path(kind), self.owner)
        assert answer.status_code == 200

    async def detected(self, owner: Headers) -> int:
        """A device of an account's company that has detected the beacon."""
        company = await self.api.company_of(owner)
        device = Device(company_id=company, udid="phone", create_on=NOW, update_on=NOW)
        await self.api.add(device)
        ids = {"venue_id": self.made["venue"]["id"], "beacon_id": self.made["beacon"]["id"]}
        trace = DetectionTrace(device_id=device.id, status="near", create_on=NOW, **ids)
        await self.api.add(trace)
        return int(device.id)


@pytest.fixture
async def place(api: Harness, owner: Headers, bodies: Bodies) -> Place:
    return await Place(api, owner).fill(bodies)


@pytest.mark.parametrize("kind", KINDS)
async def test_it_is_removed_at_once(api: Harness, owner: Headers, place: Place, kind: str):
    await place.delete(kind)
    for each in KINDS if kind == "venue" else [kind]:
        for method in ("PUT", "DELETE"):
            answer = await api.call(method, place.path(each), owner, place.made[each])
            assert answer.status_code == 404, (method, each)
        listed = (await api.call("GET", place.lists[each], owner)).json()
        assert listed == ([] if each == kind else {**listed, "code": 404})
    field = {"beacon": "beacons", "geofence": "geofencings"}.get(kind)
    if field is not None:
        (campaign,) = await api.read(place.lists["campaign"], owner)
        assert campaign[field] == []
        tied = campaign | {field: [place.made[kind]["id"]]}
        answer = await api.call("PUT", place.path("campaign"), owner, tied)
        assert (answer.status_code, list(answer.json()["fields"])) == (400, [f"{field}[0]"])


@pytest.mark.parametrize("kind", KINDS)
async def test_a_new_one_is_another(api: Harness, owner: Headers, place: Place, kind: str):
    before = place.made[kind]
    await place.delete(kind)
    again = await api.made(place.lists[kind], owner, before)
    assert again["id"] > before["id"]
    assert again | {"id": 0} == before | {"id": 0}


@pytest.mark.parametrize("kind", ["venue", "beacon"])
async def test_traces_and_statistics_keep_names(
    api: Harness, owner: Headers, place: Place, kind: str
):
    """Those of another company's device name nothing."""
    mine, stranger = await place.detected(owner), await api.account()
    theirs = await place.detected(stranger)
    venue = place.made["venue"]["id"]
    for each in ("venue", "beacon", "campaign"):
        of = {"day": date(2026, 11, 20), "kind": each, "ref": place.made[each]["id"]}
        await api.add(Statistic(**of, venue_id=venue, detections=1, devices=1, notifications=1))
    figures = "/statistics?from=2026-11-01&to=2026-11-30"
    lines, (trace,) = (
        await api.read(figures, owner),
        (await api.read(f"/crm/{mine}", owner))["beacon"],
    )
    names = [place.made[each]["name"] for each in ("venue", "beacon", "campaign")]
    assert [line["name"] for line in lines] == names
    await place.delete("campaign")
    await place.delete(kind)
    assert await api.read(figures, owner) == lines
    (after,) = (await api.read(f"/crm/{mine}", owner))["beacon"]
    assert after == trace | {"beacon": trace["beacon"] | {"tags": []}}
    (received,) = (await api.read(f"/crm/{theirs}", stranger))["beacon"]
    assert (received["lieu"], received["beacon"]) == ("", {"id": place.made["beacon"]["id"]})


async def test_a_file_makes_it_again(api: Harness, place: Place):
    """Deleted records free their natural keys."""
    references = ("beacons", "geofencings")
    venue = {key: place.made["venue"][key] for key in ("name", "address", "active")}
    venue["beacons"] = [{k: v for k, v in place.made["beacon"].items() if v is not None}]
    campaign = place.made["campaign"].items()
    venue["campaigns"] = [{k: v for k, v in campaign if k not in references}]
    raw = json.dumps({"companies": [{"name": "loaded", "venues": [venue]}]}).encode()
    await place.delete("venue")
    for round_ in range(2):
        await load_document(api.database.write, raw, None)
        async with api.database.write.begin() as session:
            everything = (await session.scalars(with_deleted(select(Venue.id)))).all()
            assert len(everything) == round_ + 2
            await session.delete((await session.scalars(select(Venue))).one())
