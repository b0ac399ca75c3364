"""docs/why.md as it stands: its commands are run, and print what it shows. And `proximity explain`
for programs, and of other places."""

import asyncio
import json
import os
import re
import shlex
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import pytest

from catalog.index.drain import rebuild
from catalog.redis_connection import connect_redis
from engine.cli.catalog import write_catalog
from engine.process.lifecycle import cancel
from tests.redis.index_writer import (
    PREFIX,
    Writer,
    beacon_entry,
    campaign_entry,
    geofence_entry,
    tag_entry,
)
from tests.rules.records import UUID, venue
from tests.servers.proximity import ROOT, Rig
from tests.trigger.pushed import PushedTrigger, pushed_trigger

FULL = "PROXIMITY_TEST_FULL" in os.environ  # else the first two stories
_BLOCK = re.compile(r"^```sh\n(.*?)^```\n\n```text\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$", re.MULTILINE)
_BEACON = {"uuid": "f7826da6-4fa2-4e98-8024-bc5b71e0893e", "major": 1, "minor": 2}
# What Anna's phone reported on Friday, in Marseille.
_FRIDAY = (("16:52:10", "near"), ("18:05:03", "near"), ("18:05:04", "near"), ("18:20:30", "far"))


@pytest.fixture
async def world(
    embedded_kafka: str, embedded_redis_url: str, sqlite_url: str, topic_prefix: str
) -> AsyncIterator[PushedTrigger]:
    """The catalog of the page, and a Friday of one device."""
    async with pushed_trigger(
        embedded_kafka, embedded_redis_url, sqlite_url, topic_prefix
    ) as trigger:
        database, store = trigger.stores.database, trigger.stores.index_store
        document = (ROOT / "docs" / "examples" / "why.json").read_bytes()
        await write_catalog(trigger.settings, database, document)
        await rebuild(database, store)
        trigger.role.intake.index.built.set()
        for time, proximity in _FRIDAY:
            written = f"2026-11-20T{time}+0100"
            trigger.now = datetime.fromisoformat(written).timestamp()
            received = {"proximity": proximity, "device": {"udid": "anna"}, "detected_at": written}
            await trigger.push(json.dumps(_BEACON | received).encode())
        await _write_notes(trigger)
        yield trigger


async def _write_notes(trigger: PushedTrigger) -> None:
    task = asyncio.create_task(trigger.role.intake.feed.run())
    await asyncio.sleep(0)
    await cancel([task])


async def test_the_page_is_true(world: PushedTrigger, rig: Rig):
    settings = world.settings
    rig.settings = {
        "REDIS_URL": settings.redis_url.get_secret_value(),
        "REDIS_PREFIX": PREFIX,
        "DATABASE_URL": settings.database_url.get_secret_value(),
    }
    steps = _BLOCK.findall((ROOT / "docs" / "why.md").read_text(encoding="utf-8"))
    assert len(steps) > 3
    for command, shown in steps if FULL else steps[:3]:
        program, *words = shlex.split(command)
        assert program == "proximity"
        done = await asyncio.to_thread(rig, *words)
        assert _ID.sub("<id>", done.stdout) == shown, command


BEACON = ("--uuid", UUID.upper().replace("-", ""), "--major", "1", "--minor", "2")
FRIDAY = "2026-11-20T22:41:00+0100"


async def test_for_programs_and_of_other_places(rig: Rig, embedded_redis_url: str):
    redis = connect_redis(embedded_redis_url)
    rig.settings = {"REDIS_URL": embedded_redis_url, "REDIS_PREFIX": PREFIX}
    paris = {"time_zone": "Europe/Paris"}
    hours = {"start_minute": 540, "end_minute": 1140, "weekdays": 0b0011111, "delay": 3600}
    writer = Writer(redis)
    writer.fields = (
        beacon_entry([1, 2], venue=venue(**paris))
        | geofence_entry(3, [3], name="Square")
        | tag_entry([3], name="Door", kind="qrcode", value="https://example.org/door")
        | campaign_entry(1, **hours, **paris)
        | campaign_entry(2, active=False, **paris)
        | campaign_entry(3)
    )
    await writer.rebuild()
    await redis.aclose()

    def explained(*words: str) -> dict[str, Any]:
        done = rig("explain", *words, "--at", FRIDAY, "--json")
        return dict(json.loads(done.stdout))

    late = ("--decided-at", "2026-11-20T22:50:00+0100", "--proximity", "near")
    printed = explained(*BEACON, *late)
    assert (printed["reason"], printed["proximity"], printed["device"]) == ("stale", "near", None)
    assert printed["decided_at"] == "2026-11-20T22:50:00+0100"
    assert (printed["beacon"]["id"], printed["company"]) == (1, {"id": 1})
    assert [each["next_at"] for each in printed["campaigns"]] == ["2026-11-23T09:00:00+0100", None]
    shown = rig("explain", "--geofence", "3", "--at", FRIDAY)
    assert shown.stdout.startswith("geofence  3, Square, "), shown.output
    code = ("https://example.org/door", "--company", "1")
    printed = explained("--qrcode", *code)
    assert (printed["qrcode"]["name"], printed["reason"]) == ("Door", "granted")
    assert explained("--nfc", *code)["reason"] == "unknown_tag"
    for words in ((), ("--nfc", code[0]), ("--nfc", *code, "--geofence", "3"), BEACON[:2]):
        assert rig("explain", *words).returncode == 2
