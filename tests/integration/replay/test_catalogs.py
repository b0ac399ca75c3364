"""Catalogs of a replay: SQL's, and a file loaded over a copy of it, which leaves SQL as it is."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from sqlalchemy import func, select

from catalog.database import Database, open_database
from catalog.limits import DEFAULT_LIMITS
from catalog.load import LoadError, load_document
from catalog.models import Base, Campaign, Venue
from catalog.secrets import open_cipher
from engine.cli.replay.catalog_copy import copy_catalog, loaded_over, make_empty
from engine.cli.replay.catalogs import ReplayedCatalog, living_campaigns, read_catalog
from engine.kafka.detections import BeaconKey
from rules.decision import decide
from rules.model import Reason, Zone
from tests.servers.schema import make_schema
from tests.unit.rules.records import epoch

UUID = "f7826da6-4fa2-4e98-8024-bc5b71e0893e"
KEY = BeaconKey(UUID, 1, 1)
LONG_AGO = epoch("2020-06-01T12:00:00+02:00")
TRIPLE = {"uuid": UUID, "major": 1, "minor": 1}


def campaign(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "title": "t",
        "push": "p",
        "format": "template",
        "template": "x",
        "cache": "day",
        "start": "2020-01-01T00:00:00+0100",
        "end": "2020-12-31T00:00:00+0100",
        "active": True,
        "beacons": [TRIPLE],
    } | fields


def document(*campaigns: dict[str, Any], **company: Any) -> bytes:
    venue = {"name": "Hall", "address": "1 Main Street", "active": True, "time_zone": "Asia/Tokyo"}
    beacon = TRIPLE | {"name": "Door", "active": True, "proximity": "far"}
    venue |= {"beacons": [beacon], "campaigns": campaigns}
    return orjson.dumps({"companies": [{"name": "Mall", "venues": [venue]} | company]})


@pytest.fixture
async def database(database_url: str) -> Any:
    await make_schema(database_url)
    database = open_database(database_url)
    cipher = open_cipher("a passphrase of these tests")
    connector = {"name": "c", "url": "https://mall.example", "method": "POST", "auth": "header"}
    people = {"accounts": [{"email": "a@mall.example", "password": "of no use here"}]}
    service: dict[str, Any] = {"connector": connector | {"parameters": []}}
    made = document(campaign("Old"), campaign("Asked", format="connector"), **service, **people)
    await load_document(database.write, made, cipher)
    yield database
    await database.close()


def reasons(catalog: ReplayedCatalog) -> dict[str, Reason]:
    """Of each campaign at the beacon, when they were open."""
    beacon = catalog.beacons[KEY]
    decision = decide(beacon.target, Zone.NEAR, LONG_AGO, LONG_AGO, 300.0, {})
    return {catalog.campaigns[each].name: reason for each, reason in decision.by_campaign}


async def counts(database: Database) -> dict[str, int]:
    async with database.read() as session:
        return {
            table.name: await session.scalar(select(func.count()).select_from(table)) or 0
            for table in Base.metadata.sorted_tables
        }


async def test_a_catalog_is_read_with_its_ended_campaigns(database: Database) -> None:
    catalog = await read_catalog(database, "as it is")
    assert reasons(catalog) == {"Old": Reason.GRANTED, "Asked": Reason.GRANTED}
    named = {each.name: each for each in catalog.campaigns.values()}
    assert named["Old"].place == ("Mall", "Hall")
    assert named["Asked"].format == "connector"
    assert {each.id for each in named.values()} == set(catalog.campaigns)
    # The texts are left behind.
    assert all(each.push == "" for each in catalog.beacons[KEY].campaigns)


async def test_a_file_over_a_copy(database: Database, tmp_path: Path) -> None:
    before = await counts(database)
    ids = await living_campaigns(database)
    base = tmp_path / "base.sqlite3"
    await copy_catalog(database, base)
    changed = document(
        campaign("Old", active=False),
        campaign("New"),
        accounts=[{"email": "b@mall.example", "password": "passed by, like its faults", "x": 1}],
    )
    async with loaded_over(base, changed, DEFAULT_LIMITS) as copy:
        other = await read_catalog(copy, "changed.json", ids)
        assert (await counts(copy))["account"] == 0
    assert reasons(other) == {
        "Old": Reason.INACTIVE,
        "New": Reason.GRANTED,
        "Asked": Reason.GRANTED,
    }
    known = {each.name: each.id for each in other.campaigns.values()}
    as_it_is = await read_catalog(database, "as it is")
    assert known["Old"] in ids
    assert known["New"] is None
    assert as_it_is.campaigns[known["Old"] or 0].key == known["Old"]
    # The base serves the next file; and SQL has noticed nothing.
    async with loaded_over(base, document(), DEFAULT_LIMITS) as copy:
        again = await read_catalog(copy, "again", ids)
    assert reasons(again) == {"Old": Reason.GRANTED, "Asked": Reason.GRANTED}
    assert await counts(database) == before


async def test_deleted_records_stay_behind(database: Database, tmp_path: Path) -> None:
    async with database.write.begin() as session:
        old = (await session.scalars(select(Campaign).where(Campaign.name == "Old"))).one()
        await session.delete(old)
        closed = Venue(company_id=1, name="Closed", address="", active=True)
        session.add(closed)
        await session.flush()
        await session.delete(closed)
    base = tmp_path / "base.sqlite3"
    await copy_catalog(database, base)
    async with loaded_over(base, document(), DEFAULT_LIMITS) as copy:
        catalog = await read_catalog(copy, "x")
        assert (await counts(copy))["venue"] == 1
    assert reasons(catalog) == {"Asked": Reason.GRANTED}


async def test_a_file_alone(tmp_path: Path) -> None:
    base = tmp_path / "base.sqlite3"
    await make_empty(base)
    async with loaded_over(base, document(campaign("Only")), DEFAULT_LIMITS) as copy:
        catalog = await read_catalog(copy, "only.json", frozenset())
    (only,) = catalog.campaigns.values()
    assert only.key == ("Mall", "Hall", "Only")
    assert reasons(catalog) == {"Only": Reason.GRANTED}
    with pytest.raises(LoadError) as refused:
        async with loaded_over(base, b"[]", DEFAULT_LIMITS):
            pass
    assert "companies" in str(refused.value)
    assert datetime.now(UTC).year > 2020  # or what ended long ago would not have ended
