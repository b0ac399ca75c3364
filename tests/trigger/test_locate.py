"""What positions and tags cost in the cache, and how they are shown."""

import asyncio
from typing import Any

import pytest

from engine.process.lifecycle import cancel
from engine.redis.decisions import DecisionStore
from engine.redis.devices import DeviceKey
from rules.geofences import Circle
from rules.model import Cap
from tests.redis.index_writer import (
    application_entry,
    campaign_entry,
    circles_entry,
    geofence_entry,
    rules_entry,
    tag_entry,
)
from tests.trigger.pushed import PushedTrigger, located
from tests.trigger.test_decision_feed import Watching

HERE = {"latitude": 48.8584, "longitude": 2.2945}
CIRCLES = Circle(4, 48.8584, 2.2945, 50.0), Circle(5, 48.86, 2.2945, 800.0)
QR = {"kind": "qrcode", "value": "https://example.org/poster"}


def at(**fields: Any) -> bytes:
    return located(position=HERE | fields)


@pytest.fixture
async def town(trigger: PushedTrigger) -> PushedTrigger:
    """Campaign 7 targets both geofences and the QR code, 8 the large geofence alone."""
    await trigger.write_index(
        application_entry("ours")
        | circles_entry(*CIRCLES)
        | geofence_entry(4, [7], radius=50.0, **HERE)
        | geofence_entry(5, [7, 8], radius=800.0, latitude=48.86, name="Park")
        | tag_entry([7])
        | campaign_entry(7, delay=60)
        | campaign_entry(8)
    )
    return trigger


async def test_priority_counts_over_all_geofences_of_a_position(town: PushedTrigger):
    rules = rules_entry(Cap(1, 60))
    await town.write_index(rules | campaign_entry(8, priority=9) | campaign_entry(7, priority=8))
    await town.push(at())
    assert [each["campaign"]["id"] for each in await town.sent()] == [8]
    assert town.count("decisions_total", reason="capped") == 1
    assert town.count("decisions_total", reason="throttled") == 1  # at the other geofence


@pytest.mark.parametrize(("most", "cycles"), [(1_000_000, 1), (1, 2)])
async def test_the_messages_of_a_cycle_are_bounded_for_many_geofences_too(
    town: PushedTrigger, most: int, cycles: int
):
    town.role.cycle.cycle_bytes = most
    await town.push(at())
    assert [each["campaign"]["id"] for each in await town.sent()] == [7, 8]
    assert town.count("batch_seconds_count", role="trigger", step="publish") == cycles


async def test_made_up_keys_of_applications_are_asked_for_once_and_fill_nothing(
    town: PushedTrigger,
):
    cache = town.role.intake.index.cache
    cache._most_places = 50
    await town.push(at(), at(latitude=49))
    kept = {key for key, each in cache.known.items() if each is not None}
    assert kept
    made_up = [located(tag=QR, api_key=f"made up {number}") for number in range(30)]
    before = town.count("index_lookups_total", layer="redis", outcome="unknown")
    for _ in range(3):
        await town.push(*made_up)
    after = town.count("index_lookups_total", layer="redis", outcome="unknown")
    assert after - before == 30
    for number in range(40):
        await town.push(located(tag=QR, api_key=f"another {number}"))
    assert len(cache.known) <= 50
    assert {key for key, each in cache.known.items() if each is not None} == kept


async def test_a_long_value_of_a_tag_counts_in_the_cache(town: PushedTrigger):
    cache = town.role.intake.index.cache
    held = cache._bytes
    await town.push(located(tag=QR | {"value": "x" * 1024}))
    assert cache._bytes - held >= 1024
    await town.push(at())
    assert cache._bytes - held >= 1024 + 640 * len(CIRCLES)
    cache.drop_all()
    assert cache._bytes == 0


async def test_watchers_and_devices_are_shown_the_place(town: PushedTrigger):
    watching = asyncio.create_task(town.role.intake.feed.run())
    shown = await Watching(town).begin(company=1)
    await town.push(at(), at(latitude=49), located(tag=QR | {"value": "secret"}))
    found = {(each.kind, each.beacon, each.reason) for each in await shown.next(4)}
    assert found == {
        ("geofence", "Court", "granted"),
        ("geofence", "Park", "granted"),
        ("position", "position", "outside"),
        ("qrcode", "qrcode", "unknown_tag"),
    }
    await cancel([watching])
    store = DecisionStore(most=10, **town.stores.redis_options)
    kept = await store.read(DeviceKey(1, "phone"))
    assert [(each.kind, each.beacon) for each in kept] == [("geofence", 5), ("geofence", 4)]
