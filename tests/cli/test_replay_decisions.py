"""Catalogs of a replay, its visits and their counts. (Its decisions are compared in
tests/system/test_oracle.py.)"""

import math
from collections import Counter, defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import func, select

from catalog.database import Database
from catalog.index.entries import ApplicationEntry, application_field, geofences_field
from catalog.load import load_document
from catalog.models import Base, Campaign
from catalog.secrets import open_cipher
from engine.cli.detection_file import Entry
from engine.cli.replay.catalogs import ReplayedCampaign, ReplayedCatalog, loaded_over, read_catalog
from engine.cli.replay.decisions import CatalogReplay, VisitReplay, VisitSettings, local_hour
from engine.kafka.detections import BeaconKey, DecodedDetection, GeofenceKey
from engine.kafka.messages import Coordinates, Detection, ReceivedDevice
from engine.process.settings import Settings
from engine.trigger.place_cache import IndexedPlace
from engine.wiring.parts import catalog_limits
from rules.decision import decide
from rules.geofences import Circle, GeofenceGrid
from rules.model import CompanyRules, Reason, Zone
from tests.cli.replay_run import TRIPLE, catalog_replay, document
from tests.cli.replay_run import campaign as draft
from tests.rules.records import UUID, beacon, campaign, epoch, geofence

NOON = epoch("2026-11-20T12:00:00Z")
LONG_AGO = epoch("2020-06-01T12:00:00+02:00")
KEYS = [BeaconKey(UUID, 1, minor) for minor in (1, 2)]
PLACES: dict[Any, IndexedPlace] = {
    key: IndexedPlace(beacon(id=key.minor, minor=key.minor), [], None) for key in KEYS
}
DOOR = BeaconKey(**TRIPLE)
OWN, LONGER = VisitSettings(), VisitSettings(60)
LIMITS = catalog_limits(Settings())


def seen(
    udid: str,
    at: float,
    key: Any = KEYS[0],
    *,
    late: float = math.nan,
    zone: Zone = Zone.NEAR,
    **more: Any,
) -> DecodedDetection:
    """`at` seconds after noon, from a file; or from Kafka, where its record came so much later."""
    record: Any = Entry(round(at * 1000), b"", timestamp=(NOON + at + late) * 1000)
    message = Detection(device=ReceivedDevice(udid=udid), **more)
    return DecodedDetection(record, message, key, zone, NOON + at)


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("2026-10-25T02:59:00+02:00", "2026-10-25T02:00:00+0200"),
        ("2026-10-25T02:01:00+01:00", "2026-10-25T02:00:00+0100"),
    ],
)
def test_an_hour_that_is_repeated_is_two(at: str, expected: str) -> None:
    assert local_hour(campaign(time_zone="Europe/Paris"), epoch(at)) == expected


@pytest.fixture
async def database(database: Database) -> Database:
    cipher = open_cipher("a passphrase of these tests")
    connector = {"name": "c", "url": "https://mall.example", "method": "POST", "auth": "header"}
    people = {"accounts": [{"email": "a@mall.example", "password": "of no use here"}]}
    service: dict[str, Any] = {"connector": connector | {"parameters": []}}
    made = document(draft("Old"), draft("Asked", format="connector"), **service, **people)
    await load_document(database.write, made, cipher, limits=LIMITS)
    return database


def reasons(catalog: ReplayedCatalog) -> dict[str, Reason]:
    """Of each campaign at the beacon, when they were open."""
    door = catalog.places[DOOR]
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


async def test_a_file_over_a_copy(database: Database) -> None:
    async with database.write.begin() as session:  # what links it to the beacon stays
        await session.delete(await session.scalar(select(Campaign).where(Campaign.name == "Asked")))
    before = await counts(database)
    changed = document(draft("Old", active=False), draft("New"))
    async with loaded_over(database, changed, LIMITS) as (copy, ids):
        other = await read_catalog(copy, "changed.json", ids)
    assert reasons(other) == {"Old": Reason.INACTIVE, "New": Reason.GRANTED}
    known = {each.campaign: each.campaign_id for each in other.campaigns.values()}
    as_it_is = await read_catalog(database, "as it is")
    assert known["Old"] in ids
    assert known["New"] is None
    assert [each.key for each in as_it_is.campaigns.values()] == [known["Old"]]
    # SQL has noticed nothing.
    assert await counts(database) == before


def following(settings: VisitSettings = OWN) -> VisitReplay:
    return VisitReplay(settings, ReplayedCatalog("x", PLACES, {}), -math.inf, 300.0, 2.0)


def all_of(replay: VisitReplay, detections: list[DecodedDetection]) -> dict[str, Any]:
    """Visits, flaps, seconds and lengths by kind, after the end."""
    for each in detections:
        replay.follow(each, [each])
    replay.finish()
    return {
        kind: (each.visits, each.flaps, each.seconds, dict(each.lengths))
        for kind, each in replay.tallies.items()
    }


def gaps(times: dict[Any, list[int]], silence: int) -> tuple[int, int, float, dict[int, int]]:
    """The same by splitting each device's times at a place where a gap is longer."""
    visits = []
    flaps = 0
    for listed in times.values():
        begin = last = listed[0]
        for at in listed[1:]:
            if at - last > silence:
                visits.append(last - begin)
                flaps += at - last <= 300
                begin = at
            last = at
        visits.append(last - begin)
    classes = (0, 1, 5, 15, 30, 60, 120, 240)
    lengths = Counter(max(m for m in classes if m * 60 <= each) for each in visits)
    return len(visits), flaps, float(sum(visits)), dict(lengths)


worlds = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 4000)), min_size=1, max_size=40
)


@given(world=worlds, exit_=st.sampled_from([None, 1, 60, 400]), by_device=st.booleans())
def test_visits_are_what_lies_between_gaps(
    world: list[tuple[int, int, int]], exit_: int | None, by_device: bool
) -> None:
    """A file in order of time, or one device after the other."""
    world.sort(key=lambda each: (each[0] if by_device else 0, each[2]))
    at_beacons, at_venue = defaultdict(list), defaultdict(list)
    for device, place, at in world:
        at_beacons[device, place].append(at)
        at_venue[device].append(at)
    expected = {
        "beacon": gaps(at_beacons, exit_ or 30),
        "venue": gaps(at_venue, exit_ or 120),
    }
    for late in (math.nan,) if by_device else (math.nan, 0.0):
        found = [seen(str(device), at, KEYS[place], late=late) for device, place, at in world]
        assert all_of(following(VisitSettings(exit_)), found) == expected


@pytest.mark.parametrize(("margin", "visits"), [(6.0, 2), (30.0, 1)])
def test_a_weak_signal_ends_a_visit_beyond_the_margin(margin: float, visits: int) -> None:
    """Near reaches 4 m, that is -71 dBm."""
    near = [seen("a", at, rssi=-65) for at in range(3)]
    far = [seen("a", 3 + at, zone=Zone.FAR, rssi=-90) for at in range(6)]
    back = [seen("a", 9 + at, rssi=-65) for at in range(5)]  # until the mean is near, too
    detections = [*near, *far, *back]
    found = all_of(following(VisitSettings(margin=margin)), detections)
    assert (found["beacon"][0], found["venue"][0]) == (visits, 1)


def test_moments_of_visits_fire_campaigns() -> None:
    """One goes away for 40 s, which is an exit by the silence of 30 s."""
    fires = [
        campaign(id=1, on="enter", delay=0),
        campaign(id=2, on="dwell", dwell_minutes=1, delay=0),
        campaign(id=3, on="exit", delay=0),
        campaign(id=4, on="enter", delay=3600),
    ]
    rules = CompanyRules(company_id=1, tracks_visits=True)
    named = {each.id: ReplayedCampaign("Mall", "Hall", "c", each.id, "html") for each in fires}
    place = IndexedPlace(beacon(minor=1), fires, None, rules=rules)
    catalog = ReplayedCatalog("x", {KEYS[0]: place}, named)
    as_run, present, longer = (catalog_replay(catalog, 300.0, v) for v in (None, OWN, LONGER))
    detections = [seen("a", at) for at in (0, 20, 60, 80, 100, 120)]
    sent = []
    for each in (as_run, present, longer):
        granted = each.decide(detections) + each.finish()
        sent.append(sorted((g.campaign.id, g.detection.detected_at - NOON) for g in granted))
    enters, exits = [(1, 0.0), (1, 60.0)], [(3, 20.0), (3, 120.0)]
    assert sent[0] == sent[1] == [*enters, (2, 120.0), *exits, (4, 0.0)]
    assert sent[2] == [(1, 0.0), (2, 60.0), (3, 120.0), (4, 0.0)]
    warm = CatalogReplay(catalog, VisitReplay(None, catalog, NOON + 60, 300.0, 2.0))
    granted = warm.decide(detections) + warm.finish()
    # An exit is dated at the last detection, so the one that is found at 60 s was before.
    assert [g.campaign.id for g in granted] == [1, 2, 3]
    rows = [
        [row for row in each.rows([present, longer]) if row["kind"] == "campaign"]
        for each in (present, longer)
    ]
    lost, gained = ({row["campaign_id"]: row["only_here"] for row in each} for each in rows)
    assert (lost, gained) == ({1: 1, 2: 0, 3: 1, 4: 0}, {1: 0, 2: 0, 3: 0, 4: 0})
    assert {row["campaign_id"]: row["sent"] for row in rows[0]} == {1: 2, 2: 1, 3: 2, 4: 1}


def test_a_place_of_one_catalog_is_none_of_the_next() -> None:
    """A geofence was moved: its visits neither begin nor go on where it was."""
    enter = campaign(id=1, on="enter", delay=0)
    of_company = CompanyRules(company_id=1, tracks_visits=True)
    key, named = GeofenceKey(4), {1: ReplayedCampaign("Mall", "Hall", "c", 1, "html")}
    place = IndexedPlace(geofence(id=4), [enter], None, rules=of_company)
    application = {application_field("k"): ApplicationEntry(id=3, company_id=1, active=True)}
    at = seen("a", 0, None, api_key="k", position=Coordinates(48.85, 2.35))
    sent = []
    for latitude in (48.85, 48.95):
        grid = {geofences_field(1): GeofenceGrid([Circle(4, latitude, 2.35, 200.0)])}
        catalog = ReplayedCatalog("x", {key: place}, named, application | grid)
        sent.append([grant.campaign.id for grant in catalog_replay(catalog, 300.0).decide([at])])
    assert sent == [[1], []]
