"""The index on every kind of Redis: the engine reads what the writer writes."""

import asyncio

import pytest

from catalog.index.entries import (
    beacon_field,
    campaign_field,
)
from catalog.redis_connection import RedisClient
from engine.kafka.detections import PlaceKey
from engine.kafka.messages import BeaconReference
from engine.process.lifecycle import cancel
from engine.process.metrics import Metrics
from engine.trigger.place_index import Loaded, PlaceIndex
from rules.model import Cap
from tests.redis.index_reader import KNOWN, UNKNOWN, granted, one, resolve
from tests.redis.index_writer import (
    Writer,
    beacon_entry,
    campaign_entry,
    connector_entry,
    rules_entry,
)
from tests.rules.records import UUID
from tests.servers.waiting import eventually


async def test_a_known_beacon_is_read_with_its_campaigns(index: PlaceIndex, built: Writer) -> None:
    found = await one(index)
    assert granted(found) == [7]
    assert found.reference == BeaconReference(1, "Desk", UUID, 1, 2)
    assert found.venue_reference.name == "Library"
    assert found.connector is None


async def test_an_unknown_beacon_is_none(index: PlaceIndex, built: Writer) -> None:
    assert [found is None for found in await resolve(index, KNOWN, UNKNOWN)] == [False, True]


async def test_partitions_that_need_a_beacon_at_once_read_it_once(
    index: PlaceIndex, built: Writer, metrics: Metrics
) -> None:
    found = await asyncio.gather(*(one(index) for _ in range(4)))
    assert all(each is found[0] for each in found)
    read = {"layer": "redis", "outcome": "hit"}
    assert metrics.registry.get_sample_value("proximity_index_lookups_total", read) == 1


async def test_beacons_that_cannot_be_loaded_hold_up_no_others(
    index: PlaceIndex, built: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One company's content may be too large for the deadline: its load is retried for ever."""
    load, begun = index._load, asyncio.Event()

    async def slow(keys: list[PlaceKey]) -> Loaded:
        if UNKNOWN in keys:
            begun.set()
            await asyncio.Event().wait()
        return await load(keys)

    monkeypatch.setattr(index, "_load", slow)
    stuck = asyncio.create_task(resolve(index, UNKNOWN))
    await begun.wait()
    async with asyncio.timeout(20):
        assert granted(await one(index)) == [7]
    await cancel([stuck])


async def test_a_connector_is_read_where_a_campaign_uses_it(
    index: PlaceIndex, built: Writer
) -> None:
    await built.put(connector_entry("https://one.example/"))
    assert (await one(index)).connector is None
    await built.put(campaign_entry(7, format="connector", content=None))
    index.cache.drop_all()
    found = (await one(index)).connector
    assert found is not None
    assert found.url == "https://one.example/"


async def test_the_rules_of_the_company_are_read(index: PlaceIndex, built: Writer) -> None:
    assert (await one(index)).rules is None
    await built.put(rules_entry(Cap(3, 60)))
    index.cache.drop_all()
    rules = (await one(index)).rules
    assert rules is not None
    assert rules.caps == (Cap(3, 60),)


async def test_a_campaign_with_a_zone_that_is_not_known_silences_only_itself(
    index: PlaceIndex, built: Writer
) -> None:
    await built.put(campaign_entry(8, time_zone="Mars/Olympus") | beacon_entry([7, 8]))
    assert granted(await one(index)) == [7]


@pytest.mark.parametrize("of", ["beacon", "campaign"])
async def test_without_a_marker_nothing_is_unknown_but_waits(
    index: PlaceIndex, built: Writer, redis: RedisClient, of: str
) -> None:
    """One bucket without its marker, be it that of the beacon or that of its campaign."""
    field = beacon_field(*KNOWN) if of == "beacon" else campaign_field(7)
    bucket = built.store.keys.of(field)
    await redis.delete(bucket)
    resolving = asyncio.create_task(index.resolve({KNOWN}, 1))
    await eventually(lambda: not index.built.is_set(), what="the missing marker is noticed")
    assert not resolving.done()
    await built.rebuild()
    index.built.set()
    found = (await asyncio.wait_for(resolving, 5))[KNOWN]
    assert found is not None
    assert granted(found) == [7]
