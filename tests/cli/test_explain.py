"""`proximity explain` for programs, and of other places; docs/why.md shows it for people."""

import json
from collections.abc import AsyncIterator, Sequence

import pytest

from catalog.redis_connection import connect_redis
from tests.redis.index_writer import (
    PREFIX,
    Writer,
    beacon_entry,
    campaign_entry,
    geofence_entry,
    tag_entry,
)
from tests.rules.records import UUID, venue
from tests.servers.proximity import Command, Rig

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
