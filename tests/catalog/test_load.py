"""A catalog document, loaded into each database."""

import json
from copy import deepcopy

import pytest
from sqlalchemy import func, select
from sqlalchemy.orm import selectinload

from catalog.accounts import verify_password
from catalog.database import Database
from catalog.index.drain import rebuild
from catalog.index.store import IndexStore
from catalog.models import (
    Account,
    Beacon,
    Campaign,
    Connector,
    Device,
    Outbox,
    Venue,
)
from catalog.secrets import Cipher, open_cipher
from tests.catalog.load_document import BEACON, CAMPAIGN, DOCUMENT, load
from tests.catalog.records import NOON, UUID, outbox_size


@pytest.fixture(scope="module")
def cipher() -> Cipher:
    return open_cipher("a passphrase for these tests")


@pytest.fixture
def document() -> dict:
    return deepcopy(DOCUMENT)


async def test_everything_is_kept(database: Database, document: dict, cipher: Cipher):
    summary = await load(database, document, cipher)
    assert {kind: count.created for kind, count in summary.counts.items()} == {
        "companies": 1,
        "accounts": 1,
        "applications": 1,
        "connectors": 1,
        "devices": 1,
        "venues": 1,
        "tags": 1,
        "beacons": 2,
        "geofences": 1,
        "campaigns": 1,
    }
    async with database.read() as session:
        account = (await session.scalars(select(Account))).one()
        assert account.email == "ada@example.org"
        assert verify_password(account.password_hash, "correct horse")
        assert set(account.permission.values()) == {2}
        connector = (await session.scalars(select(Connector))).one()
        assert (connector.method, connector.auth, connector.secret) == ("POST", "get", None)
        assert "value" not in connector.parameters
        assert json.loads(cipher.decrypt(connector.parameters)) == [{"key": "k", "value": "v"}]
        device = (await session.scalars(select(Device))).one()
        assert (device.test, device.id_connector, device.create_on) == (True, 7, NOON)
        venue = (await session.scalars(select(Venue))).one()
        assert (venue.width, venue.image, venue.time_zone) == (40, "hall.png", "Europe/Madrid")
        links = [
            selectinload(tie) for tie in (Campaign.beacons, Campaign.tags, Campaign.geofencings)
        ]
        campaign = (await session.scalars(select(Campaign).options(*links))).one()
        assert campaign.start.isoformat() == "2026-11-20T00:00:00+01:00"
        assert (campaign.cache, campaign.delay) == ("15 minutes", 900)
        assert (campaign.weekdays, campaign.start_minute, campaign.end_minute) == (125, 0, 1440)
        assert [beacon.minor for beacon in campaign.beacons] == [2]
        assert [tag.name for tag in campaign.tags] == ["entrance"]
        assert [fence.name for fence in campaign.geofencings] == ["park"]
        beacon = campaign.beacons[0]
        assert (beacon.uuid, beacon.proximity, beacon.x) == (UUID, "near", 3)


async def test_the_same_again_changes_nothing(database: Database, document: dict, cipher: Cipher):
    await load(database, document, cipher)
    before = await outbox_size(database)
    async with database.read() as session:
        token = await session.scalar(select(Connector.parameters))
    summary = await load(database, document, cipher)
    assert not summary.changed
    assert summary.of("beacons").unchanged == 2
    assert await outbox_size(database) == before
    async with database.read() as session:
        assert await session.scalar(select(Connector.parameters)) == token


async def test_only_what_differs_is_updated(database: Database, document: dict, cipher: Cipher):
    await load(database, document, cipher)
    async with database.read() as session:
        last = await session.scalar(select(func.max(Outbox.id)))
    company = document["companies"][0]
    company["devices"][0] = {"udid": "phone-1", "model": "P"}
    company["accounts"][0] |= {"password": "another horse", "permission": {"crm": 1}}
    company["connector"]["parameters"] = [{"key": "k", "value": "new"}]
    venue = company["venues"][0]
    venue["beacons"][1]["proximity"] = "far"
    campaign = venue["campaigns"][0]
    del campaign["beacons"], campaign["thuesday"], campaign["tags"]
    campaign["sunday"] = False
    summary = await load(database, document, cipher)
    assert {kind for kind, count in summary.counts.items() if count.updated} == {
        "accounts",
        "connectors",
        "devices",
        "beacons",
        "campaigns",
    }
    assert (summary.of("beacons").updated, summary.of("beacons").unchanged) == (1, 1)
    async with database.read() as session:
        device = (await session.scalars(select(Device))).one()
        assert (device.test, device.model) == (True, "P")
        account = (await session.scalars(select(Account))).one()
        assert (account.permission["crm"], account.permission["tag"]) == (1, 2)
        assert verify_password(account.password_hash, "correct horse")
        stored = (
            await session.scalars(select(Campaign).options(selectinload(Campaign.beacons)))
        ).one()
        assert (stored.weekdays, len(stored.beacons)) == (0b0111101, 1)
        kinds = await session.scalars(select(Outbox.kind).where(Outbox.id > last))
        assert sorted(kinds) == ["beacon_id", "campaign", "company"]


async def test_a_beacon_moves_to_another_venue(database: Database, document: dict, cipher: Cipher):
    await load(database, document, cipher)
    venues = document["companies"][0]["venues"]
    moved = venues[0]["beacons"].pop()
    venues.append({"name": "Annex", "address": "", "active": True, "beacons": [moved]})
    summary = await load(database, document, cipher)
    assert (summary.of("venues").created, summary.of("beacons").updated) == (1, 1)
    async with database.read() as session:
        query = select(Venue.name).join(Beacon, Beacon.venue_id == Venue.id)
        assert await session.scalar(query.where(Beacon.minor == 2)) == "Annex"


async def test_ten_thousand_beacons(
    database: Database, store: IndexStore, document: dict, cipher: Cipher
):
    venue = document["companies"][0]["venues"][0]
    venue["beacons"] = [
        {**BEACON, "major": n // 5000 + 1, "minor": n % 5000, "tags": [{"name": "entrance"}]}
        for n in range(10_000)
    ]
    venue["campaigns"] = [
        {**CAMPAIGN, "name": f"c{n}", "beacons": [{"uuid": UUID, "major": 1, "minor": n}]}
        for n in range(100)
    ]
    await load(database, document, cipher)
    assert not (await load(database, document, cipher)).changed
    assert (await rebuild(database, store)).beacons == 10_000
