"""docs/why.md as it stands: its commands are run, and print what it shows."""

import asyncio
import json
import os
import re
import shlex
from collections.abc import AsyncIterator
from datetime import datetime

import pytest

from catalog.index.drain import rebuild
from engine.cli.catalog import write_catalog
from engine.process.lifecycle import cancel
from tests.redis.index_writer import PREFIX
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
