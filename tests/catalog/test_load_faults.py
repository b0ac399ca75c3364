"""A document with faults: each is named, and nothing is changed."""

from copy import deepcopy

import pytest
from sqlalchemy import func, select

from catalog.database import Database
from catalog.load import LoadError, load_document
from catalog.models import (
    Company,
    Tag,
    Venue,
)
from catalog.secrets import Cipher, open_cipher
from tests.catalog.load_document import BEACON, DOCUMENT, faults_of, load
from tests.catalog.records import UUID, outbox_size


@pytest.fixture(scope="module")
def cipher() -> Cipher:
    return open_cipher("a passphrase for these tests")


@pytest.fixture
def document() -> dict:
    return deepcopy(DOCUMENT)


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
    campaign = venue["campaigns"][0]
    campaign |= {"cache": "fortnight", "format": "url", "tuesday": True}
    campaign["beacons"] += [{"uuid": UUID, "major": 1, "minor": 8}, {"uuid": "x", "major": 70000}]
    campaign["geofencings"] = ["park", "lake"]
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
        f"{here}.campaigns[0].cache",
        f"{here}.campaigns[0].url",
        f"{here}.campaigns[0].tuesday",
        f"{here}.campaigns[0].beacons[1]",
        f"{here}.campaigns[0].beacons[2].uuid",
        f"{here}.campaigns[0].beacons[2].major",
        f"{here}.campaigns[0].beacons[2].minor",
        f"{here}.campaigns[0].geofencings",
    }
    assert found[f"{here}.beacons[0].proximity"] == '"close": accepted: immediate, near, far'
    assert "PROXIMITY_SECRET_KEY is not set" in found["companies[0].connector"]
    assert await outbox_size(database) == before
    async with database.read() as session:
        assert (await session.scalars(select(Company.name))).all() == ["Other"]
        assert (await session.scalars(select(Tag.name))).all() == []


async def test_a_fault_found_late_changes_nothing(
    database: Database, document: dict, cipher: Cipher
):
    document["companies"][0]["venues"][0]["campaigns"][0]["beacons"][0]["minor"] = 3
    found = await faults_of(database, document, cipher)
    assert list(found.values()) == [f"{UUID}:1:3 is not a beacon of this company"]
    async with database.read() as session:
        assert await session.scalar(select(func.count()).select_from(Company)) == 0


async def test_two_venues_of_one_name(database: Database, document: dict, cipher: Cipher):
    await load(database, document, cipher)
    async with database.write.begin() as session:
        company = (await session.scalars(select(Company))).one()
        session.add(Venue(company=company, name="Main hall", address="", active=True))
    found = await faults_of(database, document, cipher)
    assert "2 venues have this name" in found["companies[0].venues[0].name"]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"{", "line 1 column 2: not JSON"),
        (b"[]", 'accepted: an object {"companies": [...]}'),
        (b'{"companies": [3]}', "companies[0]: 3: accepted: an object"),
        (b'{"companies": [], "company": []}', "company: unknown field; accepted: companies"),
    ],
)
async def test_no_document(database: Database, raw: bytes, message: str):
    with pytest.raises(LoadError) as caught:
        await load_document(database.write, raw, None)
    assert str(caught.value).startswith(message)
