"""Positions, geofences and tags, from the record to the notification."""

import asyncio
import json
from typing import Any

import pytest

from engine.process.lifecycle import cancel
from engine.redis.devices import DeviceKey
from engine.wiring.parts import build_decision_store
from rules.geofences import Circle
from tests.redis.index_writer import (
    application_entry,
    campaign_entry,
    circles_entry,
    geofence_entry,
    tag_entry,
)
from tests.trigger.pushed import NOW, PushedTrigger
from tests.trigger.test_decision_feed import Watching

HERE = {"latitude": 48.8584, "longitude": 2.2945}
CIRCLES = (
    Circle(4, 48.8584, 2.2945, 50.0),
    Circle(5, 48.86, 2.2945, 800.0),
    Circle(6, 0.0, 0.0, 9.0),
)
QR = {"kind": "qrcode", "value": "https://example.org/poster"}


def seen(**place: Any) -> bytes:
    body = {"device": {"udid": "phone"}, "detected_at": NOW, "api_key": "ours"}
    return json.dumps(body | place).encode()


def at(seconds: int = 0, **fields: Any) -> bytes:
    return seen(position=HERE | fields, detected_at=NOW + seconds * 1000)


@pytest.fixture
async def town(trigger: PushedTrigger) -> PushedTrigger:
    """Campaign 7 targets both geofences and the QR code, 8 the large geofence alone."""
    await trigger.write_index(
        application_entry("ours")
        | application_entry("over", expires_at=NOW / 1000 - 1)
        | application_entry("off", active=False)
        | circles_entry(*CIRCLES)
        | geofence_entry(4, [7], radius=50.0, **HERE)
        | geofence_entry(5, [7, 8], radius=800.0, latitude=48.86, name="Park")
        | geofence_entry(6, [7], radius=9.0, latitude=0.0, longitude=0.0, active=False)
        | tag_entry([7])
        | tag_entry([7], kind="nfc", active=False)
        | campaign_entry(7, delay=60)
        | campaign_entry(8)
    )
    return trigger


async def test_a_position_fires_each_campaign_once_at_all_its_geofences(town: PushedTrigger):
    await town.push(at())
    first, second = await town.sent()
    assert (first["campaign"]["id"], first["geofence"]) == (7, {"id": 4, "name": "Court"})
    assert (second["campaign"]["id"], second["geofence"]) == (8, {"id": 5, "name": "Park"})
    assert not {"beacon", "proximity", "nfc", "qrcode"} & first.keys()
    assert town.count("detections_total", reason="granted") == 2
    assert town.count("decisions_total", reason="granted") == 2
    assert town.count("decisions_total", reason="throttled") == 1
    await town.push(at(10))
    assert len(await town.sent()) == 3  # 8 has no delay


async def test_a_redelivered_position_has_the_same_notifications(town: PushedTrigger):
    (record,) = town.records([at()])
    for _ in range(2):
        town.worker.offer([record])
        await town.until_finished()
        town.worker = town.assigned()
    ids = [each["id"] for each in await town.sent()]
    assert len(ids) == 4
    assert ids[:2] == ids[2:]


async def test_why_a_place_fires_nothing(town: PushedTrigger) -> None:
    cases = [
        (at(latitude=49.0), "outside"),
        (at(accuracy=801), "inaccurate"),
        (at(latitude=0, longitude=0), "inactive_geofence"),
        (seen(position=HERE, api_key="made up"), "unknown_application"),
        (seen(position=HERE, api_key="over"), "unknown_application"),
        (seen(tag=QR, api_key="off"), "unknown_application"),
        (seen(tag=QR | {"value": QR["value"] + "/"}), "unknown_tag"),
        (seen(tag=QR | {"kind": "nfc"}), "inactive_tag"),
        (seen(geofence={"id": 44, "transition": "enter"}), "unknown_geofence"),
        (seen(tag=QR, detected_at=NOW - 301_000), "stale"),
    ]
    for value, reason in cases:
        before = town.count("detections_total", reason=reason)
        await town.push(value, value)
        assert town.count("detections_total", reason=reason) == before + 2
    assert await town.sent() == []


async def test_a_campaign_fires_once_and_names_the_place(town: PushedTrigger) -> None:
    court = {"geofence": {"id": 4, "name": "Court"}}
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"tag": QR}, {"qrcode": {"id": 1, "name": "Poster"}}),
        ({"geofence": {"id": 4, "transition": "enter"}}, court),
        ({"geofence": {"id": 4, "transition": "dwell"}}, court),
        # Precise enough for the large one only.
        ({"position": HERE | {"accuracy": 800}}, {"geofence": {"id": 5, "name": "Park"}}),
    ]
    for number, (place, _) in enumerate(cases):
        value = seen(device={"udid": f"{number}"}, **place)
        await town.push(value, value)
    messages = [each for each in await town.sent() if each["campaign"]["id"] == 7]
    messages.sort(key=lambda each: each["device"]["udid"])
    for (_, place), message in zip(cases, messages, strict=True):
        assert place.items() <= message.items()
        assert message["venue"] == {"id": 1, "name": "Library"}


async def test_leaving_a_geofence_is_skipped_and_counted(town: PushedTrigger):
    exit_ = seen(geofence={"id": 4, "transition": "exit"})
    await town.push(exit_, at(), exit_)
    assert town.count("records_skipped_total", role="trigger", cause="geofence_exit") == 2
    assert len(await town.sent()) == 2
    assert town.worker.done_offset == 3


async def test_made_up_keys_of_applications_are_asked_for_once_and_fill_nothing(
    town: PushedTrigger,
):
    cache = town.role.intake.index.cache
    cache._most_places = 50
    await town.push(at(), at(latitude=49))
    kept = {key for key, each in cache.known.items() if each is not None}
    assert kept
    made_up = [seen(tag=QR, api_key=f"made up {number}") for number in range(30)]
    before = town.count("index_lookups_total", layer="redis", outcome="unknown")
    for _ in range(3):
        await town.push(*made_up)
    after = town.count("index_lookups_total", layer="redis", outcome="unknown")
    assert after - before == 30
    for number in range(40):
        await town.push(seen(tag=QR, api_key=f"another {number}"))
    assert len(cache.known) <= 50
    assert {key for key, each in cache.known.items() if each is not None} == kept


async def test_a_long_value_of_a_tag_counts_in_the_cache(town: PushedTrigger):
    cache = town.role.intake.index.cache
    held = cache._bytes
    await town.push(seen(tag=QR | {"value": "x" * 1024}))
    assert cache._bytes - held >= 1024
    await town.push(at())
    assert cache._bytes - held >= 1024 + 640 * len(CIRCLES)
    cache.drop_all()
    assert cache._bytes == 0


async def test_watchers_and_devices_are_shown_the_place(town: PushedTrigger):
    watching = asyncio.create_task(town.role.intake.feed.run())
    shown = await Watching(town).begin(company=1)
    await town.push(at(), at(latitude=49), seen(tag=QR | {"value": "secret"}))
    found = {(each.kind, each.beacon, each.reason) for each in await shown.next(4)}
    assert found == {
        ("geofence", "Court", "granted"),
        ("geofence", "Park", "granted"),
        ("position", "position", "outside"),
        ("qrcode", "qrcode", "unknown_tag"),
    }
    await cancel([watching])
    store = build_decision_store(town.settings, town.redis)
    kept = await store.read(DeviceKey(1, "phone"))
    assert [(each.kind, each.beacon) for each in kept] == [("geofence", 5), ("geofence", 4)]
