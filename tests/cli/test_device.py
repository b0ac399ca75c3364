"""`proximity device`: the decisions about one device, for people and for programs."""

import asyncio
import json
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from catalog.database import open_database
from catalog.migrate import migrate
from catalog.models import Company, Device
from catalog.redis_connection import connect_redis
from engine.redis.decision_store import DecisionStore, DeviceDecision
from engine.redis.devices import DeviceKey
from rules.model import StoredDecision, Zone
from tests.cli.proximity import Proximity

FULL = "PROXIMITY_TEST_FULL" in os.environ  # each call of the command is a second
AT = 1_795_200_000.0


@pytest.fixture
def proximity(tmp_path: Path, embedded_redis_url: str, sqlite_url: str) -> Proximity:
    more = {"PROXIMITY_REDIS_URL": embedded_redis_url, "PROXIMITY_DATABASE_URL": sqlite_url}
    return Proximity(tmp_path, "127.0.0.1:1", "unused.", **more)


async def run_device(proximity: Proximity, *words: str) -> "subprocess.CompletedProcess[str]":
    return await asyncio.to_thread(proximity, "device", *words)


async def keep(redis_url: str, udid: str) -> None:
    redis = connect_redis(redis_url)
    store = DecisionStore(redis=redis, prefix="proximity:", most=10, deadline=5.0)
    outcomes = {"throttled": [1], "wrong_weekday": [2]}
    refused = StoredDecision(AT, AT, 4, Zone.FAR, "too_far", {})
    kept = StoredDecision(AT + 60, AT + 61, 4, Zone.NEAR, "throttled", outcomes)
    await store.keep([DeviceDecision(DeviceKey(1, udid), each) for each in (refused, kept)])
    await redis.aclose()


async def test_a_device_that_is_queried(
    proximity: Proximity, embedded_redis_url: str, sqlite_url: str
):
    if FULL:
        done = await run_device(proximity, "Mall", "phone")
        assert (done.returncode, done.stdout) == (1, "")
        assert "run: proximity migrate" in done.stderr
    await migrate(sqlite_url)
    database = open_database(sqlite_url)
    now = datetime.now(UTC)
    async with database.write.begin() as session:
        mall = Company(name="Mall", create_on=now)
        session.add(Device(company=mall, udid="phone", create_on=now, update_on=now))
    await database.close()
    if FULL:
        done = await run_device(proximity, "Market", "phone")
        assert (done.returncode, done.stderr) == (1, "proximity: there is no company 'Market'\n")
        done = await run_device(proximity, "1", "phone")
        assert done.stdout == "phone at Mall, device 1\nnothing is kept of the last day\n"
    await keep(embedded_redis_url, "phone")
    await keep(embedded_redis_url, "\x1b[2J")
    done = await run_device(proximity, "Mall", "phone")
    assert done.stdout == (
        "phone at Mall, device 1\n"
        "2026-11-20T18:41:00+0000  throttled  near at 4, deleted\n"
        "    throttled           1  deleted\n"
        "    wrong_weekday       2  deleted\n"
        "2026-11-20T18:40:00+0000  too_far  far at 4, deleted\n"
    )
    if FULL:
        done = await run_device(proximity, "Mall", "\x1b[2J")
        assert done.stdout.startswith("\\u001b[2J at Mall, not recorded yet\n")
    done = await run_device(proximity, "Mall", "phone", "--json")
    decisions = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["reason"] for each in decisions] == ["throttled", "too_far"]
