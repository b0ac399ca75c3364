"""Catalogs of a replay, its decisions at the detections' own times, and their counts."""

import math
from typing import Any

import pytest
from sqlalchemy import func, select

from catalog.database import Database, open_database
from catalog.index.entries import ApplicationEntry, application_field, geofences_field
from catalog.limits import DEFAULT_LIMITS
from catalog.load import load_document
from catalog.models import Base
from catalog.secrets import open_cipher
from engine.cli.detection_file import FileRecord
from engine.cli.replay.catalogs import (
    ReplayedCampaign,
    ReplayedCatalog,
    loaded_over,
    read_catalog,
)
from engine.cli.replay.decisions import (
    CatalogReplay,
    Grant,
    local_hour,
)
from engine.kafka.detections import BeaconKey, DecodedDetection, GeofenceKey, TagKey
from engine.kafka.messages import (
    Coordinates,
    Detection,
    GeofenceEvent,
    ReceivedDevice,
    ScannedTag,
)
from engine.trigger.place_cache import IndexedPlace
from rules.decision import decide
from rules.geofences import Circle, GeofenceGrid
from rules.model import CampaignSnapshot, Reason, Zone
from tests.cli.replay_run import UUID, catalog_replay, document
from tests.cli.replay_run import campaign as draft
from tests.cli.replay_run import reasons as counts_by_reason
from tests.rules.records import UUID as RULES_UUID
from tests.rules.records import beacon, campaign, epoch, geofence, tag
from tests.servers.schema import make_schema

NOON = epoch("2026-11-20T12:00:00Z")
KEY = BeaconKey(RULES_UUID, 1, 2)
PLACE = ("Company", "Library")


def replay(*campaigns: CampaignSnapshot, known: bool = True, name: str = "x") -> CatalogReplay:
    named = {
        each.id: ReplayedCampaign(*PLACE, each.name, each.id if known else None, each.format)
        for each in campaigns
    }
    made: dict[Any, IndexedPlace] = {KEY: IndexedPlace(beacon(), campaigns, None)}
    catalog = ReplayedCatalog(name, made, named)
    return catalog_replay(catalog, 300.0)


def detection(udid: str, at: float, late: float = math.nan) -> DecodedDetection:
    """Seen `at` seconds after noon; its record came so much later."""
    record: Any = FileRecord(b"", 1, timestamp=(NOON + at + late) * 1000)
    message = Detection(
        uuid=RULES_UUID, major=1, minor=2, device=ReceivedDevice(udid=udid), proximity="near"
    )
    return DecodedDetection(record, message, KEY, Zone.NEAR, NOON + at)


def times(grants: list[Grant]) -> list[float]:
    return [grant.detection.detected_at - NOON for grant in grants]


def test_a_claim_holds_for_its_delay_in_the_time_of_the_detections() -> None:
    replayed = replay(campaign(id=7, delay=60))
    seen = [detection("a", at) for at in (0, 59.999, 60, 30, 119, 120, 400)]
    assert times(replayed.decide(seen)) == [0, 60, 120, 400]
    assert times(replayed.decide([detection("b", 10)])) == [10]
    assert replayed.reached == {7: {"a": 4, "b": 1}}
    assert replayed.sent == 5


def test_positions_and_tags_find_their_places_and_fire_a_campaign_once() -> None:
    fires = [campaign(id=7, delay=0)]
    places: dict[Any, IndexedPlace] = {
        **{GeofenceKey(n): IndexedPlace(geofence(id=n), fires, None) for n in (1, 2)},
        TagKey(1, "nfc", "door"): IndexedPlace(tag(kind="nfc", value="door"), fires, None),
    }
    grid = GeofenceGrid([Circle(n, 48.0, 2.0, 100.0 * n) for n in (1, 2)])
    owner = ApplicationEntry(id=1, company_id=1, active=True)
    data = {application_field("k"): owner, geofences_field(1): grid}
    named = {7: ReplayedCampaign(*PLACE, "c", 7, "html")}
    catalog = ReplayedCatalog("x", places, named, data)
    replayed = catalog_replay(catalog, 300.0)
    entered, left = GeofenceEvent(1, "enter"), GeofenceEvent(1, "exit")
    signals: list[dict[str, Any]] = [
        {"position": Coordinates(48.0, 2.0), "api_key": "k"},
        {"position": Coordinates(49.0, 2.0), "api_key": "k"},
        {"position": Coordinates(48.0, 2.0, 101.0), "api_key": "k"},
        {"position": Coordinates(48.0, 2.0), "api_key": "of nobody"},
        {"tag": ScannedTag("nfc", "door"), "api_key": "k"},
        {"tag": ScannedTag("nfc", "Door"), "api_key": "k"},
        {"geofence": entered},
        {"geofence": left},
    ]
    record: Any = FileRecord(b"", 1)
    seen = []
    for signal in signals:
        message = Detection(device=ReceivedDevice(udid="a"), **signal)
        key = GeofenceKey(1) if "geofence" in signal else None
        seen.append(DecodedDetection(record, message, key, Zone.UNKNOWN, NOON))
    sent = replayed.decide(seen)
    assert [each.place.place.id for each in sent] == [1, 2, 1, 1]
    detections = counts_by_reason(list(replayed.rows()))
    assert detections[Reason.OUTSIDE] == 1
    assert detections[Reason.UNKNOWN_APPLICATION] == 1
    assert detections[Reason.UNKNOWN_TAG] == 1


@pytest.mark.parametrize(
    ("late", "reason"),
    [
        (math.nan, Reason.GRANTED),
        (299.9, Reason.GRANTED),
        (301.0, Reason.STALE),
        (-301.0, Reason.FUTURE),
        (-NOON - 0.001, Reason.GRANTED),  # Kafka's way to say that a record has no time
    ],
)
def test_a_detection_is_as_old_as_its_record_was_late(late: float, reason: Reason) -> None:
    replayed = replay(campaign())
    replayed.decide([detection("a", 0, late)])
    assert counts_by_reason(list(replayed.rows())) == {reason: 1}


PARIS = "Europe/Paris"


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("2026-10-25T02:59:00+02:00", "2026-10-25T02:00:00+0200"),
        ("2026-10-25T02:01:00+01:00", "2026-10-25T02:00:00+0100"),
    ],
)
def test_an_hour_that_is_repeated_is_two(at: str, expected: str) -> None:
    assert local_hour(campaign(time_zone=PARIS), epoch(at)) == expected


LIVING = BeaconKey(UUID, 1, 1)
LONG_AGO = epoch("2020-06-01T12:00:00+02:00")


@pytest.fixture
async def database(database_url: str) -> Any:
    await make_schema(database_url)
    database = open_database(database_url)
    cipher = open_cipher("a passphrase of these tests")
    connector = {"name": "c", "url": "https://mall.example", "method": "POST", "auth": "header"}
    people = {"accounts": [{"email": "a@mall.example", "password": "of no use here"}]}
    service: dict[str, Any] = {"connector": connector | {"parameters": []}}
    made = document(draft("Old"), draft("Asked", format="connector"), **service, **people)
    await load_document(database.write, made, cipher)
    yield database
    await database.close()


def reasons(catalog: ReplayedCatalog) -> dict[str, Reason]:
    """Of each campaign at the beacon, when they were open."""
    door = catalog.places[LIVING]
    decision = decide(door.target, Zone.NEAR, LONG_AGO, LONG_AGO, 300.0, {})
    return {catalog.campaigns[each].campaign: reason for each, reason in decision.by_campaign}


async def counts(database: Database) -> dict[str, int]:
    async with database.read() as session:
        return {
            table.name: await session.scalar(select(func.count()).select_from(table)) or 0
            for table in Base.metadata.sorted_tables
        }


async def test_a_catalog_is_read_with_its_ended_campaigns(database: Database) -> None:
    catalog = await read_catalog(database, "as it is")
    assert reasons(catalog) == {"Old": Reason.GRANTED, "Asked": Reason.GRANTED}
    named = {each.campaign: each for each in catalog.campaigns.values()}
    assert named["Old"][:2] == ("Mall", "Hall")
    assert named["Asked"].format == "connector"
    assert {each.campaign_id for each in named.values()} == set(catalog.campaigns)
    # The texts are left behind.
    assert all(each.push == "" for each in catalog.places[LIVING].campaigns)


async def test_a_file_over_a_copy(database: Database) -> None:
    before = await counts(database)
    changed = document(
        draft("Old", active=False),
        draft("New"),
        accounts=[{"email": "b@mall.example", "password": "passed by, like its faults", "x": 1}],
    )
    async with loaded_over(database, changed, DEFAULT_LIMITS) as (copy, ids):
        other = await read_catalog(copy, "changed.json", ids)
        assert (await counts(copy))["account"] == 0
    assert reasons(other) == {
        "Old": Reason.INACTIVE,
        "New": Reason.GRANTED,
        "Asked": Reason.GRANTED,
    }
    known = {each.campaign: each.campaign_id for each in other.campaigns.values()}
    as_it_is = await read_catalog(database, "as it is")
    assert known["Old"] in ids
    assert known["New"] is None
    assert as_it_is.campaigns[known["Old"] or 0].key == known["Old"]
    # SQL has noticed nothing.
    assert await counts(database) == before
