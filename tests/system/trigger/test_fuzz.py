"""Malformed detections for a whole process: none stops it, and each is accounted for."""

import json
import os
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.system.probe import Probe
from tests.system.rig import Rig
from tests.system.topics import TopicSet
from tests.system.traffic import Message
from tests.system.world import Triple, small_world

FULL = "PROXIMITY_TEST_FULL" in os.environ
COUNT = 200_000 if FULL else 6000
SEED = int(os.environ.get("PROXIMITY_TEST_SEED", "9"))
MOST_BYTES = 1_000_000  # nobody can put more on the topic

NUMBERS = (
    *(0, -1, 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64),
    *(10**30, 1.5, 1e308, -1e308, 5e-324, -0.0, 65_535, 65_536),
)
TEXTS = (
    *("", " ", "\0", "a\0b", "x" * 255, "x" * 256, "x" * 300_000, "é" * 255, "\U0001f4f1" * 255),
    *("\u202e\u2066", "{63}", "%s%n", "'; DROP TABLE device; --", "\n\r\t", "\ufeff", "\ufffe"),
)
TIMES = (
    *("0001-01-01T00:00:00+0000", "0001-01-01T00:00:00+2359", "9999-12-31T23:59:59-2359"),
    *("9999-12-31T23:59:59Z", "2026-02-30T00:00:00Z", "2026-11-20T10:00:00+9999", "now"),
    *("1969-12-31T23:59:59.999999999Z", -1, 0, 1, 253_402_300_799_000, 2**63, 2**64, 1e300),
)
RAW = (
    *(b"", b"null", b"[]", b"{", b"\xff\xfe", b"\xed\xa0\x80", b"\0", b'{"a":' * 100_000),
    *(b"[" * 100_000, b"1" * 100_000, b'"' + b"\\ud800" + b'"', b"NaN", b"{}" * 1000),
)


def detections(  # noqa: C901  one field after the other
    dice: random.Random, triples: list[Triple]
) -> Callable[[], Message]:
    """Generates detections with one or two invalid, large or strange values."""

    def device() -> dict[str, Any]:
        body: dict[str, Any] = {"udid": f"fuzz {dice.randrange(500)}"}
        for name in ("udid", "name", "version", "model", "token_push", "id_connector", "other"):
            if dice.random() < 0.15:
                body[name] = value()
        return body

    def value() -> Any:
        kind = dice.randrange(12)
        if kind == 0:
            return [value()] * dice.randrange(3)
        if kind == 1:
            return {dice.choice(TEXTS)[:20]: value()}
        return dice.choice((dice.choice(NUMBERS), dice.choice(TEXTS), None, True))

    def make() -> Message:
        uuid, major, minor = dice.choice(triples)
        body: dict[str, Any] = {"uuid": uuid, "major": major, "minor": minor, "device": device()}
        body |= dice.choice(
            (
                {"proximity": dice.choice((1, "near", "Far", value()))},
                {"rssi": dice.choice((-60, value())), "tx_power": dice.choice((-59, value()))},
            )
        )
        if dice.random() < 0.3:
            body["detected_at"] = dice.choice((int(time.time() * 1000), dice.choice(TIMES)))
        if dice.random() < 0.1:
            body[dice.choice(("uuid", "major", "minor", "device", "ip"))] = value()
        raw = json.dumps(body).encode()
        if dice.random() < 0.05:
            raw = raw.replace(b"fuzz ", dice.choice((b"\\ud800", b"\\u0000", b"\xff", b"\\")))
        if dice.random() < 0.05:
            raw = raw.replace(b": 1", dice.choice((b": NaN", b": 1e999", b": " + b"9" * 5000)))
        if dice.random() < 0.05:
            raw = dice.choice(RAW)
        if dice.random() < 0.05:
            raw = raw[: dice.randrange(len(raw) + 1)]
        raw = raw[:MOST_BYTES]
        key = dice.choice((b"fuzz %d" % dice.randrange(500), b"", None, b"\xff" * 5000, b"\0"))
        return Message(0, key, raw) if raw else Message(0, key or b"", None)

    return make


@pytest.mark.timeout(600 if FULL else 120)
async def test_nothing_stops_it(
    rig: Rig, topics: TopicSet, redis_url: str, sqlite_url: str
) -> None:
    world = small_world(beacons=4)
    await world.save(sqlite_url)
    await topics.create()
    make = detections(random.Random(SEED), [plan.triple for plan in world.beacons])
    await topics.publish(make() for _ in range(COUNT))
    trigger = rig.trigger(REDIS_URL=redis_url, DATABASE_URL=sqlite_url)
    await trigger.until_ready()
    await topics.until_done()
    assert trigger.process.poll() is None, trigger.output
    samples = await trigger.metrics()
    assert samples.total("detections") + samples.total("dead_letters") == COUNT
    assert samples.total("dead_letters") == await topics.count("dead-letters")
    assert samples.total("notifications") == await topics.count("notifications")
    assert samples.by("detections", "reason")["granted"] > 50
    assert "always 0" in await Probe(topics).fires(world.beacons[0].triple)
    await trigger.stop()
