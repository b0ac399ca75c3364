"""The limits of a company's catalog hold, in the interface and in files, however many write."""

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import func, select

from catalog.load import LoadError, load_document
from catalog.models import Campaign
from engine.process.settings import Settings
from engine.wiring.parts import catalog_limits
from tests.api.harness import CAMPAIGN, Bodies, Harness, Headers, harness
from tests.catalog.records import UUID

FEW = {
    "campaign_content_bytes": 2000,
    "venue_campaigns": 5,
    "venue_beacons": 4,
    "company_geofences": 3,
    "beacon_open_campaigns": 3,
}
NOW = datetime.now(UTC)


@pytest.fixture
async def api(settings: Settings) -> Any:
    """The interface, with limits that a test can reach."""
    async with harness(settings.model_copy(update=FEW)) as made:
        yield made


@dataclass
class Holder:
    """An account holder who fills a venue."""

    api: Harness
    headers: Headers
    bodies: Bodies
    venue: int

    async def beacon(self, **other: Any) -> Any:
        body = self.bodies.beacon(**other)
        return await self.api.call("POST", f"/region/{self.venue}/beacon", self.headers, body)

    async def geofence(self) -> Any:
        path = f"/region/{self.venue}/geofencing"
        return await self.api.call("POST", path, self.headers, self.bodies.geofence())

    async def campaign(self, *, days: tuple[int, int] = (-1, 1), **other: Any) -> Any:
        body = self.bodies.campaign(**{**dated(*days), "tags": None, "beacons": None, **other})
        return await self.api.call("POST", f"/lieu/{self.venue}/campaign", self.headers, body)

    async def edit(self, kind: str, record: dict[str, Any], **other: Any) -> Any:
        where = {"campaign": "lieu", "beacon": "region"}[kind]
        path = f"/{where}/{self.venue}/{kind}/{record['id']}"
        return await self.api.call("PUT", path, self.headers, record | other)


def dated(start: int, end: int) -> dict[str, str]:
    days = {"start": NOW + timedelta(days=start), "end": NOW + timedelta(days=end)}
    return {name: f"{day:%Y-%m-%dT%H:%M:01+0000}" for name, day in days.items()}


@pytest.fixture
async def holder(api: Harness, bodies: Bodies) -> Holder:
    headers = await api.account()
    venue = (await api.call("POST", "/region", headers, bodies.venue())).json()["id"]
    return Holder(api, headers, bodies, venue)


def refused(answer: Any, *words: str) -> dict[str, str]:
    """The fields of a 400 that names the limit."""
    assert answer.status_code == 400, answer.text
    assert all(word in answer.text for word in words), answer.text
    return dict(answer.json().get("fields", {}))


async def test_content(holder: Holder):
    fits: Any = {"format": "html", "html": "é" * 900}
    made = await holder.campaign(**fits)
    assert made.status_code == 201
    fields = refused(await holder.campaign(**fits | {"html": "é" * 1000}), "2000 bytes together")
    assert list(fields) == ["html"]
    more = {"template": "t" * 300}  # the content of every format is stored
    refused(await holder.edit("campaign", made.json(), **more), "2000 bytes together")
    assert (await holder.edit("campaign", made.json(), title="shorter")).status_code == 200


async def test_records(holder: Holder):
    for make, most, what in (
        (holder.beacon, 4, "4 beacons in a venue"),
        (holder.geofence, 3, "3 geofences in a company"),
        (lambda: holder.campaign(active=False), 5, "5 campaigns in a venue"),
    ):
        answers = await asyncio.gather(*(make() for _ in range(2 * most)))
        assert Counter(answer.status_code for answer in answers) == {201: most, 400: most}
        for answer in answers:
            if answer.status_code == 400:
                refused(answer, f"at most {what}")


async def test_open_campaigns_of_a_beacon(holder: Holder):
    beacon = (await holder.beacon(tags=["door"])).json()
    direct: Any = {"beacons": [beacon["id"]]}
    by_tag: Any = {"tags": ["door"]}
    first = (await holder.campaign(**direct)).json()
    assert (await holder.campaign(**by_tag)).status_code == 201
    assert (await holder.campaign(**direct | by_tag)).status_code == 201
    assert list(refused(await holder.campaign(**by_tag), "at most 3", "would have 4")) == ["active"]
    # What has ended, or is switched off, is none of the three.
    ended = await holder.campaign(**direct, days=(-4, -2))
    off = await holder.campaign(**by_tag, active=False)
    assert (ended.status_code, off.status_code) == (201, 201)
    refused(await holder.edit("campaign", off.json(), active=True), "at most 3")
    # What makes room, or takes none, is not refused.
    edits: list[dict[str, Any]] = [{"active": False}, {"active": True}, {"beacons": []}]
    for other in edits:
        assert (await holder.edit("campaign", first, **other)).status_code == 200, other
    assert (await holder.edit("campaign", off.json(), active=True)).status_code == 200


async def test_a_tag_brings_campaigns_to_a_beacon(holder: Holder):
    tagged = (await holder.beacon(tags=["a"])).json()
    for _ in range(2):
        assert (await holder.campaign(tags=["a"])).status_code == 201
        assert (await holder.campaign(tags=["b"])).status_code == 201
    fields = refused(await holder.edit("beacon", tagged, tags=["a", "b"]), "would have 4")
    assert list(fields) == ["tags"]
    refused(await holder.beacon(tags=["a", "b"]), "would have 4")
    assert (await holder.edit("beacon", tagged, tags=["b"])).status_code == 200


async def test_what_is_restored_is_added(holder: Holder):
    call = partial(holder.api.call, headers=holder.headers)
    first, body = f"/region/{holder.venue}", holder.bodies.venue(name="Other")
    there = replace(holder, venue=(await holder.api.made("/region", holder.headers, body))["id"])
    beacon, shared = [(await each.beacon()).json()["id"] for each in (holder, there)]
    off = [(await holder.campaign(beacons=[beacon], active=False)).json() for _ in range(4)]
    await call("DELETE", f"{first}/beacon/{beacon}")
    for each in off:
        each["active"] = True
        del each["beacons"]  # it stays as it is
        assert (await holder.edit("campaign", each)).status_code == 200
    refused(await call("POST", f"{first}/beacon/{beacon}/restore"), "would have 4")
    await call("DELETE", f"/lieu/{holder.venue}/campaign/{off.pop()['id']}")
    assert (await call("POST", f"{first}/beacon/{beacon}/restore")).status_code == 200
    for each in off:
        await holder.geofence()
        assert (await holder.edit("campaign", each, beacons=[shared])).status_code == 200
    await call("DELETE", first)
    fence = (await there.geofence()).json()["id"]
    refused(await call("POST", f"{first}/restore"), "at most 3 geofences in a company")
    await call("DELETE", f"/region/{there.venue}/geofencing/{fence}")
    fourth = (await there.campaign(beacons=[shared])).json()
    refused(await call("POST", f"{first}/restore"), "would have 4")
    assert (await there.edit("campaign", fourth, active=False)).status_code == 200
    assert (await call("POST", f"{first}/restore")).status_code == 200


async def test_in_a_file(api: Harness, settings: Settings):
    """All faults are named, and nothing is stored."""
    limits = catalog_limits(settings.model_copy(update=FEW))
    beacon = {"name": "b", "uuid": UUID, "major": 1, "active": True, "proximity": "far"}
    campaign = CAMPAIGN | dated(-1, 1) | {"tags": ["door"]}
    venue = {"name": "Hall", "address": "-", "active": True}

    async def faults(beacons: int, campaigns: int, **other: Any) -> dict[str, str]:
        records = {
            "beacons": [beacon | {"minor": n, "tags": ["door"]} for n in range(beacons)],
            "campaigns": [campaign | {"name": f"c{n}"} | other for n in range(campaigns)],
        }
        raw = json.dumps({"companies": [{"name": "Library", "venues": [venue | records]}]})
        with pytest.raises(LoadError) as caught:
            await load_document(api.database.write, raw.encode(), None, limits=limits)
        return {at: text for at, _, text in (f.partition(": ") for f in caught.value.faults)}

    for place, found, expected in (
        (".venues[0].beacons", await faults(5, 1), "at most 4 beacons in a venue"),
        (".venues[0].campaigns", await faults(1, 6, active=False), "at most 5 campaigns"),
        ("", await faults(1, 4), "the beacon 'b' would have 4"),
        (".venues[0].campaigns[0].html", await faults(1, 1, html="x" * 2000), "bytes"),
    ):
        assert expected in found[f"companies[0]{place}"]
    async with api.database.read() as session:
        assert await session.scalar(select(func.count()).select_from(Campaign)) == 0
