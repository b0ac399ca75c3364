"""docs/why.md as it stands: its commands are run, and print what it shows. And `proximity explain`
for programs, and of other places."""

import asyncio
import json
import os
import re
import shlex
from collections.abc import AsyncIterator, Sequence
from datetime import datetime

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
from tests.servers.proximity import ROOT, Command, Rig
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


@pytest.fixture
async def writer(embedded_redis_url: str) -> AsyncIterator[Writer]:
    redis = connect_redis(embedded_redis_url)
    yield Writer(redis)
    await redis.aclose()


@pytest.fixture
def proximity(rig: Rig, embedded_redis_url: str) -> Rig:
    rig.settings = {"REDIS_URL": embedded_redis_url, "REDIS_PREFIX": PREFIX}
    return rig


def explain(rig: Rig, *words: str, place: Sequence[str] = BEACON) -> Command:
    return rig("explain", *place, *words)


async def catalog(writer: Writer) -> None:
    paris = {"time_zone": "Europe/Paris"}
    hours = {"start_minute": 540, "end_minute": 1140, "weekdays": 0b0011111, "delay": 3600}
    writer.fields = (
        beacon_entry([1, 2], venue=venue(**paris))
        | campaign_entry(1, **hours, **paris)
        | campaign_entry(2, active=False, **paris)
    )
    await writer.rebuild()


async def test_for_programs(writer: Writer, proximity: Rig):
    await catalog(writer)
    late = ("--decided-at", "2026-11-20T22:50:00+0100", "--proximity", "near")
    done = explain(proximity, "--at", FRIDAY, "--json", *late)
    printed = json.loads(done.stdout)
    assert (printed["reason"], printed["proximity"], printed["device"]) == ("stale", "near", None)
    assert printed["decided_at"] == "2026-11-20T22:50:00+0100"
    assert (printed["beacon"]["id"], printed["company"]) == (1, {"id": 1})
    assert [each["next_at"] for each in printed["campaigns"]] == ["2026-11-23T09:00:00+0100", None]
    again = explain(proximity, "--at", "2026-11-23T09:00:00+0100", "--json")
    assert [each["reason"] for each in json.loads(again.stdout)["campaigns"]] == [
        "granted",
        "inactive",
    ]


async def test_other_places(writer: Writer, proximity: Rig):
    writer.fields = (
        geofence_entry(3, [1], name="Square")
        | tag_entry([1], name="Door", kind="qrcode", value="https://example.org/door")
        | campaign_entry(1)
    )
    await writer.rebuild()
    done = explain(proximity, "--at", FRIDAY, place=("--geofence", "3"))
    assert done.stdout.startswith("geofence  3, Square, "), done
    code = ("--qrcode", "https://example.org/door", "--company", "1")
    done = explain(proximity, "--at", FRIDAY, "--json", place=code)
    printed = json.loads(done.stdout)
    assert (printed["qrcode"]["name"], printed["reason"]) == ("Door", "granted")
    code = ("--nfc", *code[1:])
    done = explain(proximity, "--json", place=code)
    assert json.loads(done.stdout)["reason"] == "unknown_tag"
    for words in ((), code[:2], (*code, "--geofence", "3"), BEACON[:2]):
        assert (explain(proximity, place=words)).returncode == 2
