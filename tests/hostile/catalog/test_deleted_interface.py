"""A deleted record is hidden from its account holder at once, except in past data."""

import json
from datetime import UTC, date, datetime
from typing import Any

import pytest
from sqlalchemy import select

from catalog.load import load_document
from catalog.models import Account, Campaign, DetectionTrace, Device, Statistic, Venue
from catalog.soft_deletion import with_deleted
from catalog.statistics import StatisticFilter, statistic_lines
from tests.integration.api.bodies import Bodies
from tests.integration.api.harness import Harness, Headers

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
Made = dict[str, Any]


class VenueScene:
    """A venue with a beacon, a geofence and a campaign of both, created through the interface."""

    def __init__(self, api: Harness, owner: Headers, made: dict[str, Made]) -> None:
        self._api = api
        self._owner = owner
        self.made = made
        venue = made["venue"]["id"]
        self.paths = {
            "venue": f"/region/{venue}",
            "beacon": f"/region/{venue}/beacon/{made['beacon']['id']}",
            "geofence": f"/region/{venue}/geofencing/{made['geofence']['id']}",
            "campaign": f"/lieu/{venue}/campaign/{made['campaign']['id']}",
        }
        self.lists = {name: path.rpartition("/")[0] for name, path in self.paths.items()}

    async def get(self, path: str) -> Any:
        return (await self._api.call("GET", path, self._owner)).json()

    async def delete(self, name: str) -> None:
        answer = await self._api.call("DELETE", self.paths[name], self._owner)
        assert answer.status_code == 200


@pytest.fixture
async def owner(api: Harness) -> Headers:
    return await api.account()


@pytest.fixture
async def place(api: Harness, owner: Headers, bodies: Bodies) -> VenueScene:
    async def make(path: str, body: Made) -> Made:
        answer = await api.call("POST", path, owner, body)
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    venue = await make("/region", bodies.venue())
    number = venue["id"]
    beacon = await make(f"/region/{number}/beacon", bodies.beacon(tags=["door"]))
    fence = await make(f"/region/{number}/geofencing", bodies.geofence())
    links = {"beacons": [beacon["id"]], "geofencings": [fence["id"]], "tags": ["door"]}
    campaign = await make(f"/lieu/{number}/campaign", bodies.campaign(**links))
    made = {"venue": venue, "beacon": beacon, "geofence": fence, "campaign": campaign}
    return VenueScene(api, owner, made)


@pytest.mark.parametrize("name", ["venue", "beacon", "geofence", "campaign"])
async def test_it_is_removed_at_once(api: Harness, owner: Headers, place: VenueScene, name: str):
    await place.delete(name)
    inside = list(place.paths) if name == "venue" else [name]
    for each in inside:
        for method in ("PUT", "DELETE"):
            answer = await api.call(method, place.paths[each], owner, place.made[each])
            assert answer.status_code == 404, (method, each)
        listed = await place.get(place.lists[each])
        assert listed == ([] if each == name else {**listed, "code": 404})
    if name in ("beacon", "geofence"):
        (campaign,) = await place.get(place.lists["campaign"])
        assert campaign[{"beacon": "beacons", "geofence": "geofencings"}[name]] == []
        field = {"beacon": "beacons", "geofence": "geofencings"}[name]
        tied = campaign | {field: [place.made[name]["id"]]}
        answer = await api.call("PUT", place.paths["campaign"], owner, tied)
        assert (answer.status_code, list(answer.json()["fields"])) == (400, [f"{field}[0]"])


@pytest.mark.parametrize("name", ["venue", "beacon", "geofence", "campaign"])
async def test_a_new_one_is_another(api: Harness, owner: Headers, place: VenueScene, name: str):
    before = place.made[name]
    await place.delete(name)
    if name == "venue":
        place.lists["venue"] = "/region"
    body = {key: value for key, value in before.items() if key != "id"}
    again = await api.call("POST", place.lists[name], owner, body)
    assert again.status_code == 201
    assert again.json()["id"] > before["id"]
    assert {**again.json(), "id": 0} == {**before, "id": 0}


@pytest.mark.parametrize("name", ["venue", "beacon"])
async def test_traces_keep_names(api: Harness, owner: Headers, place: VenueScene, name: str):
    number = await _add_detected_device(api, owner, place)
    before = (await place.get(f"/crm/{number}"))["beacon"][0]
    await place.delete(name)
    after = (await place.get(f"/crm/{number}"))["beacon"][0]
    assert after == before | {"beacon": before["beacon"] | {"tags": []}}
    assert after["lieu"] == place.made["venue"]["name"]


async def test_another_company_s_traces_name_nothing(api: Harness, place: VenueScene):
    stranger = await api.account()
    number = await _add_detected_device(api, stranger, place)
    await place.delete("venue")
    received = (await api.call("GET", f"/crm/{number}", stranger)).json()["beacon"][0]
    assert (received["lieu"], received["beacon"]) == ("", {"id": place.made["beacon"]["id"]})


async def _add_detected_device(api: Harness, owner: Headers, place: VenueScene) -> int:
    async with api.database.write.begin() as session:
        company = await session.scalar(
            select(Account.company_id).where(Account.email == owner["x-service-key"])
        )
        device = Device(company_id=company, udid="phone", create_on=NOW, update_on=NOW)
        session.add(device)
        await session.flush()
        ids = {"venue_id": place.made["venue"]["id"], "beacon_id": place.made["beacon"]["id"]}
        session.add(DetectionTrace(device_id=device.id, status="near", create_on=NOW, **ids))
        return device.id


async def test_statistics_keep_names(api: Harness, place: VenueScene):
    venue = place.made["venue"]["id"]
    async with api.database.write.begin() as session:
        figures = {"venue_id": venue, "detections": 1, "devices": 1, "notifications": 1}
        for kind in ("venue", "beacon", "campaign"):
            ref = place.made[kind]["id"]
            session.add(Statistic(day=date(2026, 11, 20), kind=kind, ref=ref, **figures))

    async def snapshot() -> list[Any]:
        async with api.database.read() as session:
            choice = StatisticFilter(date(2026, 11, 1), date(2026, 11, 30))
            return [line async for line in statistic_lines(session, choice)]

    before = await snapshot()
    assert [line.name for line in before] == [
        place.made[kind]["name"] for kind in ("venue", "beacon", "campaign")
    ]
    await place.delete("campaign")
    await place.delete("venue")
    assert await snapshot() == before


async def test_a_file_makes_it_again(api: Harness, place: VenueScene):
    """Natural keys are those of what is not deleted."""
    made = place.made
    document: dict[str, Any] = {
        "name": "loaded",
        "venues": [
            {
                **{key: made["venue"][key] for key in ("name", "address", "active")},
                "beacons": [{k: v for k, v in made["beacon"].items() if v is not None}],
                "campaigns": [
                    {
                        k: v
                        for k, v in made["campaign"].items()
                        if k not in ("beacons", "geofencings")
                    }
                ],
            }
        ],
    }
    raw = json.dumps({"companies": [document]}).encode()
    await place.delete("venue")
    for round_ in range(2):
        await load_document(api.database.write, raw, None)
        async with api.database.write.begin() as session:
            everything = (await session.scalars(with_deleted(select(Venue.id)))).all()
            assert len(everything) == round_ + 2
            assert len((await session.scalars(select(Campaign.id))).all()) == 1
            await session.delete((await session.scalars(select(Venue))).one())
