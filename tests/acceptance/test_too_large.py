"""What a topic does not take becomes a dead letter, and the rest goes on."""

import json
import time

import pytest

from tests.acceptance.comparison import messages_by_id
from tests.acceptance.probe import Probe
from tests.acceptance.rig import Rig
from tests.acceptance.topics import TopicSet
from tests.acceptance.traffic import Message
from tests.acceptance.world import small_world

LIMIT = 1_048_588  # Kafka's default of message.max.bytes


@pytest.mark.timeout(90)
async def test_what_is_too_large_goes_aside(
    rig: Rig, topics: TopicSet, redis_url: str, sqlite_url: str
) -> None:
    world = small_world()
    first, second = world.beacons[:2]
    for plan in world.beacons[::2]:
        world.campaign(
            plan.venue,
            f"large {plan.record.name}",
            [plan],
            html="x" * LIMIT,
            format="html",
            delay=86_400,
        )
    await world.save(sqlite_url)
    await topics.create()
    # Not JSON, and with the headers of a dead letter more than the topic takes.
    heavy = Message(0, b"heavy", b"x" * (LIMIT - 150))
    trigger = rig.trigger(REDIS_URL=redis_url, DATABASE_URL=sqlite_url)
    await trigger.until_ready()
    probe = Probe(topics)
    began = time.time()
    for _ in range(3):
        assert "always 0" in await probe.fires(first.triple)
        assert "always 1" in await probe.fires(second.triple)
    await topics.publish([heavy])
    await topics.until_done()
    assert trigger.process.poll() is None
    await trigger.stop()

    letters = await topics.read("dead-letters")
    reasons = [dict(letter.headers)["reason"] for letter in letters]
    assert reasons == [b"too_large"] * 4
    (stripped,) = [letter for letter in letters if letter.key == b"heavy"]
    assert stripped.value is None
    assert dict(stripped.headers)["detail"].startswith(b"malformed_json")
    original = json.loads(next(letter.value for letter in letters if letter.value))
    assert original["minor"] == first.record.minor
    found = messages_by_id(await topics.read("notifications"))
    assert {body["campaign"]["name"] for bodies in found.values() for body in bodies} >= {
        "always 0",
        "always 1",
    }
    assert time.time() - began < 60
