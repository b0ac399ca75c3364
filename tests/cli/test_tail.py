"""`proximity tail`: what it shows, and that it ends at a signal."""

import json
import signal
from collections.abc import AsyncIterator

import msgspec
import pytest

from api.reports import LiveDecision, LiveOutcome
from catalog.redis_connection import connect_redis
from engine.redis.decisions import TailFilter, TailStore
from rules.model import Zone
from tests.servers.proximity import Command, Rig
from tests.servers.waiting import eventually

DECISION = LiveDecision(
    1_795_200_000.0,
    1_795_200_001.0,
    1,
    "Library",
    "De\x1bsk",
    Zone.NEAR,
    "throttled",
    [LiveOutcome(7, "Loans", "throttled")],
    3,
)


@pytest.fixture
async def store(embedded_redis_url: str) -> AsyncIterator[TailStore]:
    redis = connect_redis(embedded_redis_url)
    yield TailStore(redis=redis, prefix="proximity:", deadline=5.0)
    await redis.aclose()


@pytest.fixture
def proximity(rig: Rig, embedded_redis_url: str) -> Rig:
    rig.settings["REDIS_URL"] = embedded_redis_url
    return rig


async def watching(command: Command, store: TailStore) -> TailFilter:
    """The filter that the command has registered."""
    await eventually(lambda: command.stderr == "watching; Ctrl-C ends\n")
    (wanted,) = await store.watchers()
    return wanted


async def test_until_ctrl_c(proximity: Rig, store: TailStore):
    words = ("--company", "1", "--campaign", "Loans", "--udid", "anna")
    tail = proximity.start("tail", *words)
    wanted = await watching(tail, store)
    name = wanted.name
    assert wanted == TailFilter(name, 1, "loans", "anna", None)
    scanned = msgspec.structs.replace(
        DECISION, beacon="Door", zone=Zone.UNKNOWN, left_out=0, kind="qrcode"
    )
    await store.write({name: [DECISION, scanned]})
    lines = [
        "18:40:01  throttled  near at Library, De\\u001bsk: Loans throttled  (3 more before)\n",
        "18:40:01  throttled  qrcode at Library, Door: Loans throttled\n",
    ]
    await eventually(lambda: tail.stdout == "".join(lines))
    await store.leave(wanted)
    await eventually(store.watchers, what="it renews its registration")
    tail.send_signal(signal.SIGINT)
    assert (await tail.ended(), tail.output.count("\n")) == (130, 3)
    assert await store.watchers() == []


async def test_so_many_for_programs(proximity: Rig, store: TailStore):
    tail = proximity.start("tail", "--json", "--count", "2")
    name = (await watching(tail, store)).name
    await store.write({name: [DECISION] * 3})
    assert await tail.ended() == 0
    decision = {
        "detected_at": "2026-11-20T18:40:00+0000",
        "decided_at": "2026-11-20T18:40:01+0000",
        "company": 1,
        "venue": "Library",
        "kind": "beacon",
        "beacon": "De\x1bsk",
        "proximity": "near",
        "reason": "throttled",
        "campaigns": [{"id": 7, "name": "Loans", "outcome": "throttled"}],
        "left_out": 3,
    }
    assert list(map(json.loads, tail.stdout.splitlines())) == [decision] * 2
