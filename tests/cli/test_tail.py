"""`proximity tail`: what it shows, and that it ends at a signal."""

import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from api.reports import LiveDecision, LiveOutcome
from catalog.redis_connection import connect_redis
from engine.redis.decisions import TailFilter, TailStore
from rules.model import Zone
from tests.cli.proximity import Proximity
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
def proximity(tmp_path: Path, embedded_redis_url: str) -> Proximity:
    return Proximity(tmp_path, "127.0.0.1:1", "-", PROXIMITY_REDIS_URL=embedded_redis_url)


class Tail:
    """The command, running."""

    def __init__(self, proximity: Proximity, store: TailStore, *words: str) -> None:
        self.store = store
        self.process = proximity.start("tail", *words)

    async def watching(self) -> TailFilter:
        """The filter that the command has registered."""
        assert self.process.stderr is not None
        assert self.process.stderr.readline() == "watching; Ctrl-C ends\n"
        (wanted,) = await self.store.watchers()
        return wanted

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def end(self) -> tuple[int, str, str]:
        output, error = self.process.communicate(timeout=60)
        return self.process.returncode, output, error


async def test_until_ctrl_c(proximity: Proximity, store: TailStore):
    tail = Tail(proximity, store, "--company", "1", "--campaign", "Loans", "--udid", "anna")
    wanted = await tail.watching()
    name = wanted.name
    assert wanted == TailFilter(name, 1, "loans", "anna", None)
    await store.write({name: [DECISION]})
    assert tail.line() == (
        "18:40:01  throttled  near at Library, De\\u001bsk: Loans throttled  (3 more before)\n"
    )
    scanned = msgspec.structs.replace(
        DECISION, beacon="Door", zone=Zone.UNKNOWN, left_out=0, kind="qrcode"
    )
    await store.write({name: [scanned]})
    assert tail.line() == "18:40:01  throttled  qrcode at Library, Door: Loans throttled\n"
    await store.leave(wanted)
    await eventually(store.watchers, what="it renews its registration")
    tail.process.send_signal(signal.SIGINT)
    assert tail.end() == (130, "", "")
    assert await store.watchers() == []


async def test_so_many_for_programs(proximity: Proximity, store: TailStore):
    tail = Tail(proximity, store, "--json", "--count", "2")
    name = (await tail.watching()).name
    await store.write({name: [DECISION] * 3})
    decision = json.loads(tail.line())
    assert decision == {
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
    assert json.loads(tail.line()) == decision
    assert tail.end()[0] == 0
