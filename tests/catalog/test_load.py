"""A catalog document, loaded into each database; its faults are named, and change nothing."""

import json
from copy import deepcopy

import pytest
from sqlalchemy import func, select
from sqlalchemy.orm import selectinload

from catalog.database import Database
from catalog.load import LoadError, LoadSummary, load_document
from catalog.models import Account, Campaign, Company, Connector, Device, Outbox, Tag, Venue
from catalog.passwords import verify_password
from catalog.secrets import Cipher, open_cipher
from engine.process.settings import Settings
from engine.wiring.parts import catalog_limits
from tests.catalog.records import NOON, UUID, outbox_size
from tests.servers.schema import on_sqlite

LIMITS = catalog_limits(Settings())
CAMPAIGN = {
    "name": "Welcome",
    "push": "Come in",
    "title": "Hello",
    "format": "html",
    "html": "<p>",
    "cache": "15 minutes",
    "start": "2026-11-20T00:00:00+0100",
    "end": "2026-12-31T00:00:00+01:00",
    "active": 1,
    "thuesday": "0",
    "beacons": [{"uuid": UUID.upper().replace("-", ""), "major": "1", "minor": 2}],
    "tags": [{"name": "entrance"}],
    "geofencings": [{"name": "park"}],
    "nfcs": [{"name": "Desk"}],
    "qrcodes": ["Desk"],
}
ZONE = "Europe/Madrid"
BEACON = {"name": "Door", "uuid": UUID, "major": 1, "active": True, "proximity": "Near"}
PARK = {"name": "park", "longitude": -0.07, "latitude": 39.9, "radius": 100, "active": True}
DOCUMENT = {
    "companies": [
        {
            "name": "Library",
            "accounts": [{"email": "Ada@Example.org", "password": "correct horse"}],
            "applications": [{"name": "App", "type": "ios", "api_key": "key-1"}],
            "connector": {
                "name": "Ours",
                "url": "https://example.org/hook",
                "method": "post",
                "auth": "GET",
                "parameters": '[{"key": "k", "value": "v"}]',
            },
            "devices": [{"udid": "phone-1", "test": "1", "id_connector": 7, "time_zone": ZONE}],
            "time_zone": ZONE,
            "caps": [{"max": 3, "per": "day"}],
            "quiet_hours": {"start": "22:00", "end": "08:00"},
            "presence": 1,
            "venues": [
                {
                    "name": "Main hall",
                    "address": "1 Square",
                    "active": 1,
                    "with": 40,
                    "map": "hall.png",
                    "time_zone": "Europe/Madrid",
                    "beacons": [
                        {**BEACON, "minor": 1, "tags": [{"name": "entrance"}]},
                        {**BEACON, "minor": 2, "x": 3},
                    ],
                    "nfcs": [{"name": "Desk", "value": "1", "active": True, "tags": ["entrance"]}],
                    "qrcodes": [{"name": "Desk", "value": "1", "active": True}],
                    "geofences": [PARK],
                    "campaigns": [CAMPAIGN],
                }
            ],
        }
    ]
}


async def load(database: Database, document: dict, cipher: Cipher | None) -> LoadSummary:
    raw = json.dumps(document).encode()
    return await load_document(database.write, raw, cipher, limits=LIMITS, clock=lambda: NOON)


async def faults_of(database: Database, document: dict, cipher: Cipher | None) -> dict[str, str]:
    with pytest.raises(LoadError) as caught:
        await load(database, document, cipher)
    return {place: text for place, _, text in (f.partition(": ") for f in caught.value.faults)}


@pytest.fixture(scope="module")
def cipher() -> Cipher:
    return open_cipher("a passphrase for these tests")


@pytest.fixture
def document() -> dict:
    return deepcopy(DOCUMENT)


async def test_everything_is_kept(database: Database, document: dict, cipher: Cipher):
    summary = await load(database, document, cipher)
    once = ["companies", "accounts", "applications", "connectors", "devices", "venues", "tags"]
    once += ["geofences", "nfcs", "qrcodes", "campaigns"]
    created = {kind: count["created"] for kind, count in summary.items()}
    assert created == dict.fromkeys(once, 1) | {"beacons": 2}
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
        company = (await session.scalars(select(Company))).one()
        assert (company.caps, company.presence) == ([{"max": 3, "per": "day"}], True)
        assert company.quiet_hours == {"start": "22:00", "end": "08:00"}
        assert company.time_zone == device.time_zone == ZONE
        venue = (await session.scalars(select(Venue))).one()
        assert (venue.width, venue.image, venue.time_zone) == (40, "hall.png", "Europe/Madrid")
        ties = (Campaign.beacons, Campaign.tags, Campaign.geofencings, Campaign.scan_tags)
        links = map(selectinload, ties)
        campaign = (await session.scalars(select(Campaign).options(*links))).one()
        assert campaign.start.isoformat() == "2026-11-20T00:00:00+01:00"
        assert (campaign.cache, campaign.delay) == ("15 minutes", 900)
        assert (campaign.weekdays, campaign.start_minute, campaign.end_minute) == (125, 0, 1440)
        assert [beacon.minor for beacon in campaign.beacons] == [2]
        assert [tag.name for tag in campaign.tags] == ["entrance"]
        assert [fence.name for fence in campaign.geofencings] == ["park"]
        assert [tag.kind for tag in campaign.scan_tags] == ["nfc", "qrcode"]
        beacon = campaign.beacons[0]
        assert (beacon.uuid, beacon.proximity, beacon.x) == (UUID, "near", 3)


async def test_the_same_again_changes_nothing(database: Database, document: dict, cipher: Cipher):
    await load(database, document, cipher)
    before = await outbox_size(database)
    async with database.read() as session:
        token = await session.scalar(select(Connector.parameters))
    summary = await load(database, document, cipher)
    assert {outcome for count in summary.values() for outcome in count} == {"unchanged"}
    assert summary["beacons"]["unchanged"] == 2
    assert await outbox_size(database) == before
    async with database.read() as session:
        assert await session.scalar(select(Connector.parameters)) == token
    document["companies"][0]["venues"][0]["nfcs"][0]["name"] = "of the same value"
    found = await faults_of(database, document, cipher)
    assert "companies[0].venues[0].nfcs[0].value" in found


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
    updated = [kind for kind, count in summary.items() if count["updated"]]
    assert updated == ["accounts", "connectors", "devices", "beacons", "campaigns"]
    assert summary["beacons"] == {"updated": 1, "unchanged": 1}
    async with database.read() as session:
        device = (await session.scalars(select(Device))).one()
        assert (device.test, device.model) == (True, "P")
        account = (await session.scalars(select(Account))).one()
        assert (account.permission["crm"], account.permission["tag"]) == (1, 2)
        assert verify_password(account.password_hash, "correct horse")
        query = select(Campaign).options(selectinload(Campaign.beacons))
        stored = (await session.scalars(query)).one()
        assert (stored.weekdays, len(stored.beacons)) == (0b0111101, 1)
        kinds = await session.scalars(select(Outbox.kind).where(Outbox.id > last))
        assert sorted(kinds) == ["beacon", "campaign", "company"]


async def test_every_fault_at_once_and_nothing_changed(
    database: Database, document: dict, cipher: Cipher
):
    other = {"name": "Other", "accounts": [{"email": "bob@example.org", "password": "12345678"}]}
    other["venues"] = [
        {"name": "v", "address": "", "active": 1, "beacons": [{**BEACON, "minor": 9}]}
    ]
    await load(database, {"companies": [other]}, None)
    before = await outbox_size(database)
    company = document["companies"][0]
    company["accounts"][0]["email"] = "bob@example.org"
    venue = company["venues"][0]
    venue["time_zone"] = "Mars/Base"
    venue["beacons"][0] |= {"proximity": "close", "colour": "red"}
    venue["beacons"].append({**BEACON, "minor": 9})
    venue["beacons"].append({**BEACON, "minor": 2})
    del venue["geofences"][0]["radius"]
    venue["qrcodes"].append(venue["qrcodes"][0] | {"name": "Twin"})
    campaign = venue["campaigns"][0]
    campaign |= {"cache": "fortnight", "format": "url", "tuesday": True}
    campaign["beacons"] += [{"uuid": UUID, "major": 1, "minor": 8}, {"uuid": "x", "major": 70000}]
    campaign["geofencings"] = ["park", "lake"]
    campaign["nfcs"] = ["lake"]
    found = await faults_of(database, document, None)
    here = "companies[0].venues[0]"
    assert set(found) == {
        "companies[0].accounts[0].email",
        "companies[0].connector",
        f"{here}.time_zone",
        f"{here}.beacons[0].proximity",
        f"{here}.beacons[0].colour",
        f"{here}.beacons[2]",
        f"{here}.beacons[3]",
        f"{here}.geofences[0].radius",
        f"{here}.qrcodes[1].value",
        f"{here}.campaigns[0].cache",
        f"{here}.campaigns[0].url",
        f"{here}.campaigns[0].tuesday",
        f"{here}.campaigns[0].beacons[1]",
        f"{here}.campaigns[0].beacons[2].uuid",
        f"{here}.campaigns[0].beacons[2].major",
        f"{here}.campaigns[0].beacons[2].minor",
        f"{here}.campaigns[0].geofencings",
        f"{here}.campaigns[0].nfcs",
    }
    assert "PROXIMITY_SECRET_KEY is not set" in found["companies[0].connector"]
    assert await outbox_size(database) == before
    async with database.read() as session:
        assert (await session.scalars(select(Company.name))).all() == ["Other"]
        assert (await session.scalars(select(Tag.name))).all() == []


@on_sqlite
@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"{", "line 1 column 2: not JSON"),
        (b"[]", 'accepted: an object {"companies": [...]}'),
        (b'{"companies": [3]}', "companies[0]: accepted: an object"),
        (b'{"companies": [{"name": "A", "connector": {}}]}', "companies[0].connector.name: requi"),
        (b'{"companies": [], "company": []}', "company: unknown field; accepted: companies"),
    ],
)
async def test_no_document(database: Database, raw: bytes, message: str):
    with pytest.raises(LoadError) as caught:
        await load_document(database.write, raw, None, limits=LIMITS)
    assert str(caught.value).startswith(message)
