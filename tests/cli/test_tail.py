"""`proximity tail` and `notifications tail`: what they show, and that they end at a signal."""

import json
import signal
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from api.reports import LiveDecision, LiveOutcome
from catalog.redis_connection import connect_redis
from engine.redis.decisions import TailFilter, TailStore
from rules.model import Zone
from tests.servers.proximity import Command, Rig
from tests.servers.waiting import eventually
from tests.system.topics import Message, TopicSet

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
    async with connect_redis(embedded_redis_url) as redis:
        yield TailStore(redis=redis, prefix="proximity:", deadline=5.0)


@pytest.fixture
def on_redis(rig: Rig, embedded_redis_url: str) -> Rig:
    rig.settings["REDIS_URL"] = embedded_redis_url
    return rig


async def watching(command: Command, store: TailStore) -> TailFilter:
    """The filter that the command has registered."""
    await eventually(lambda: command.stderr == "watching; Ctrl-C ends\n")
    (wanted,) = await store.watchers()
    return wanted


async def test_until_ctrl_c(on_redis: Rig, store: TailStore):
    words = ("--company", "1", "--campaign", "Loans", "--udid", "anna")
    tail = on_redis.start("tail", *words)
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
    assert (await tail.ended(), tail.output.count("\n")) == (130, 4)
    assert await store.watchers() == []


async def test_so_many_for_programs(on_redis: Rig, store: TailStore):
    tail = on_redis.start("tail", "--json", "--count", "2")
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


ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\u202e"


def notification(campaign: str, udid: str, **more: Any) -> bytes:
    fields = {
        "id": f"{campaign}-{udid}",
        "campaign": {"id": len(campaign), "name": campaign, "hash": None},
        "company": {"id": 1},
        "venue": {"id": 1, "name": "Library"},
        "beacon": {"id": 1, "name": "Desk", "uuid": "u", "major": 1, "minor": 2},
        "proximity": "near",
        "device": {"udid": udid},
        "title": "Hello",
        "push": "Come in",
        "background": None,
        "color": None,
        "detected_at": "2026-11-20T10:00:00+0000",
        "triggered_at": "2026-11-20T10:00:01+0000",
        "expires_at": "2026-11-20T10:05:00+0000",
        "format": "template",
        "template": "t",
    }
    return json.dumps(fields | more, indent=1, ensure_ascii=False).encode()


async def put(topics: TopicSet, *values: bytes) -> None:
    topics.mention("notifications")
    await topics.publish((Message(b"k", value) for value in values), "notifications")


async def test_everything_there_is_or_what_is_requested(proximity: Rig, topics: TopicSet) -> None:
    await put(
        topics,
        notification("Welcome", "a"),
        b"no notification",
        notification("Odd", "a", triggered_at="soon"),
        notification("Loans", "a", future_field=1),
        notification("Welcome", "b", title=ESCAPES, html=ESCAPES),
    )
    command = ("notifications", "tail", "--from-beginning", "--count")
    done = proximity(*command, "3")
    assert done.returncode == 0, done.stderr
    first, second, third = done.stdout.splitlines()
    assert "Welcome -> a: Hello. Come in [template]" in first
    assert "Loans -> a" in second
    assert "Welcome -> b" in third
    assert third.isprintable()
    assert done.stderr.count("a record that is not a notification is skipped") == 2
    (line,) = proximity(*command, "1", "--udid", "b", "--json").stdout.splitlines()
    assert line.isprintable()
    assert json.loads(line)["title"] == ESCAPES
    for named in ("loans", "5"):
        done = proximity(*command, "1", "--campaign", named, "--json")
        (line,) = done.stdout.splitlines()
        assert json.loads(line)["future_field"] == 1


async def test_notifications_are_shown_as_they_arrive_until_ctrl_c(
    proximity: Rig, topics: TopicSet
) -> None:
    await put(topics, notification("Before", "a"))
    tail = proximity.start("notifications", "tail")
    await eventually(lambda: tail.stderr.startswith("reading "))
    await put(topics, notification("After", "a"))
    await eventually(lambda: "After -> a" in tail.stdout)
    tail.send_signal(signal.SIGINT)
    assert (await tail.ended(), tail.output.count("\n")) == (130, 3)
