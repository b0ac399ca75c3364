"""The index agrees with SQL, whether it is rebuilt or drained, by one process or by several."""

import asyncio
import contextlib
import os
import random
from typing import Any

import pytest
from sqlalchemy import select

from catalog.database import Database
from catalog.errors import IndexWriteError
from catalog.index.drain import DrainResult, IndexStore, drain_once, index_transaction, rebuild
from catalog.index.entries import (
    BUCKETS,
    Marker,
    application_field,
    beacon_field,
    bucket,
    campaign_field,
    connector_field,
    decode_application,
    decode_campaign,
    decode_connector,
    decode_geofences,
    decode_place,
    decode_rules,
    geofence_field,
    geofences_field,
    tag_field,
)
from catalog.models import Beacon, Venue
from rules.model import Cap, CompanyRules, QuietHours, Zone
from tests.catalog.edits import Edits
from tests.catalog.records import NOON, UUID, Records, drain, fresh_index, index_of, outbox_size


@pytest.mark.parametrize("seed", range(4 if "PROXIMITY_TEST_FULL" in os.environ else 1))
async def test_drained_equals_built(
    database: Database, store: IndexStore, redis: Any, records: Records, seed: int
):
    dice = random.Random(seed)
    edits = Edits(dice, records)
    await rebuild(database, store)
    log = []
    for _ in range(30):
        async with database.write.begin() as session:
            log += [await edits.make(session) for _ in range(dice.randrange(1, 8))]
        await drain(database, store)
        assert await index_of(redis, store) == await fresh_index(database), log
    assert await index_of(redis, store), "the edits left nothing to compare"
    await rebuild(database, store)
    assert await index_of(redis, store) == await fresh_index(database)


async def test_entries(database: Database, store: IndexStore, redis: Any, records: Records):
    async with database.write.begin() as session:
        company = records.company()
        venue = records.venue(company, time_zone="Europe/Paris")
        elsewhere = records.venue(company)
        tag = records.tag(company)
        beacon = records.beacon(venue, proximity="near", tags=[tag])
        listing = records.campaign(elsewhere, beacons=[beacon], active=False)
        tagged = records.campaign(venue, tags=[tag], format="connector")
        not_here = records.campaign(elsewhere, tags=[tag])
        connector = records.connector(company, parameters="token")
        session.add_all([listing, tagged, not_here, connector])
        park, gone = records.geofence(venue, tags=[tag]), records.geofence(records.venue(company))
        label = records.scan_tag(elsewhere, "nfc", value="é")
        listing.scan_tags = [label]
        application = records.application(company, expire_on=NOON)
        session.add_all([park, gone, application])
    async with database.write.begin() as session:
        await session.delete(await session.get_one(Venue, gone.venue_id))
    built = await rebuild(database, store)
    assert (built["geofences"], built["tags"], built["applications"]) == (1, 1, 1)
    assert (built["beacons"], built["campaigns"], built["connectors"]) == (1, 3, 1)
    content = await index_of(redis, store)
    entry = decode_place(content[beacon_field(UUID, 1, beacon.minor)])
    assert entry.campaigns == sorted([listing.id, tagged.id])
    assert getattr(entry.place, "reach", None) is Zone.NEAR
    assert entry.place.venue.time_zone == "Europe/Paris"
    place = decode_place(content[geofence_field(park.id)])
    assert (place.place.kind, place.campaigns) == ("geofence", [tagged.id])
    place = decode_place(content[tag_field(company.id, "nfc", "é")])
    assert (place.place.kind, place.campaigns) == ("nfc", [listing.id])
    circles = decode_geofences(content[geofences_field(company.id)]).circles
    assert circles == [(park.id, 48.85, 2.35, 100)]
    key = decode_application(content[application_field(application.api_key)])
    assert (key.company_id, key.active, key.expires_at) == (company.id, True, NOON.timestamp())
    sent = decode_campaign(content[campaign_field(not_here.id)])
    assert (sent.content, sent.start, sent.delay, sent.active) == ("<p>", NOON, 86400, True)
    idle = decode_campaign(content[campaign_field(listing.id)])
    assert (idle.content, idle.start, idle.delay, idle.active) == ("<p>", NOON, 86400, False)
    assert decode_connector(content[connector_field(company.id)]).parameters == "token"


async def test_rules_of_companies(
    database: Database, store: IndexStore, redis: Any, records: Records
):
    async with database.write.begin() as session:
        plain, visited = records.company(), records.company()
        campaign = records.campaign(records.venue(visited), on="dwell", dwell_minutes=5)
        company = records.company(
            caps=[{"max": 3, "per": "day"}],
            quiet_hours={"start": "22:00", "end": "08:30", "weekdays": ["monday", "sunday"]},
            time_zone="Europe/Paris",
            visit_silence=60,
        )
        session.add_all([plain, campaign, company])
    await rebuild(database, store)
    content = await index_of(redis, store)
    found = [decode_rules(value) for key, value in sorted(content.items()) if key.startswith("r:")]
    assert found == [
        CompanyRules(company_id=visited.id, tracks_visits=True),
        CompanyRules(
            company_id=company.id,
            caps=(Cap(3, 86_400),),
            quiet_hours=QuietHours(22 * 60, 8 * 60 + 30, 0b1000001),
            time_zone="Europe/Paris",
            visit_silence=60,
        ),
    ]


async def test_writers_at_once(
    database: Database,
    store: IndexStore,
    redis: Any,
    records: Records,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("catalog.index.drain._SQL_SECONDS", 60.0)  # the machine may be busy
    async with database.write.begin() as session:
        company = records.company()
        session.add_all([records.beacon(records.venue(company)) for _ in range(600)])
    built = await asyncio.gather(*(drain_once(database, store) for _ in range(4)))
    assert built.count(DrainResult.REBUILT) == 1
    async with database.write.begin() as session:
        for beacon in await session.scalars(select(Beacon)):
            beacon.name = "new"

    await asyncio.gather(*(drain(database, store) for _ in range(4)))
    await drain(database, store)
    assert await outbox_size(database) == 0
    assert await index_of(redis, store) == await fresh_index(database)


async def test_a_writer_that_is_not_the_last_changes_nothing(
    database: Database, store: IndexStore, redis: Any, records: Records
):
    async with database.write.begin() as session:
        session.add(records.beacon(records.venue(records.company())))
    await rebuild(database, store)
    async with index_transaction(database, store, wait=True) as stale:
        assert stale is not None
        before = stale.markers
    await rebuild(database, store)
    content = await index_of(redis, store)
    marker = Marker(catalog=stale.state.catalog, generation=2, writer="stale")
    with pytest.raises(IndexWriteError):
        await store.write(before[0], marker, {f"c:{n}": b"{}" for n in range(100)}, content)
    await store.fill(marker, {"c:1": b"{}"})
    with pytest.raises(IndexWriteError):
        await store.finish(before, marker, {bucket("c:1"): 1})
    assert await index_of(redis, store) == content


async def test_a_write_that_is_sent_twice(database: Database, store: IndexStore, redis: Any):
    await rebuild(database, store)
    (before, *_) = await store.markers()
    marker = Marker(catalog="ours", generation=2, writer="a")
    for _ in range(2):
        await store.write(before, marker, {"c:1": b"{}"}, ["c:2"])
    assert set(await store.markers()) == {marker}
    last = Marker(catalog="ours", generation=3, writer="b")
    await store.fill(last, {"c:3": b"{}"})
    for _ in range(2):
        await store.finish([marker] * BUCKETS, last, {bucket("c:3"): 1})
    assert await index_of(redis, store) == {"c:3": b"{}"}


async def test_a_writer_that_dies_before_its_commit(
    database: Database, store: IndexStore, redis: Any, records: Records
):
    """Redis is ahead then: the next writer builds the index again."""
    await rebuild(database, store)
    with contextlib.suppress(ConnectionError):
        async with index_transaction(database, store, wait=True) as transaction:
            assert transaction is not None
            await transaction.write({"c:1": b"{}"})
            raise ConnectionError
    assert await drain_once(database, store) is DrainResult.REBUILT
    assert await index_of(redis, store) == {}
    assert await drain_once(database, store) is DrainResult.IDLE


async def test_another_catalogs_index_is_replaced(
    database: Database, store: IndexStore, redis: Any, records: Records
):
    other = Marker(catalog="other", generation=500)
    await store.fill(other, {"c:1": b"{}"})
    await store.finish([None] * BUCKETS, other, {bucket("c:1"): 1})
    assert await drain_once(database, store) is DrainResult.REBUILT
    assert await index_of(redis, store) == {}
    assert all(mark and mark.generation == 501 for mark in await store.markers())
