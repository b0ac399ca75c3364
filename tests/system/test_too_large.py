"""A message that its topic refuses becomes a dead letter, and the others are published."""

import json
import time

import pytest

from catalog.redis_connection import connect_redis
from engine.process.metrics import Metrics
from engine.redis.claims import ClaimRequest, Claims
from tests.system.comparison import messages_by_id
from tests.system.probe import Probe
from tests.system.rig import Rig
from tests.system.topics import TopicSet
from tests.system.traffic import Message
from tests.system.world import World, small_world

LIMIT = 1_048_588  # Kafka's default of message.max.bytes


@pytest.mark.timeout(90)
async def test_too_large_messages_become_dead_letters(
    rig: Rig, topics: TopicSet, redis_url: str, sqlite_url: str, topic_prefix: str
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
    await _check_claims_are_free(world, probe, redis_url, topic_prefix)
    detections = await topics.count("detections")
    replay = rig.start("dead-letters", "replay")
    assert await replay.ended() == 1
    assert replay.output.count("the detection itself is counted") == 3
    assert "0 dead letters put back" in replay.output
    assert await topics.count("detections") == detections

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


async def _check_claims_are_free(world: World, probe: Probe, redis_url: str, prefix: str) -> None:
    """The claim of a refused message is given back; the claim of a published one is kept."""
    redis = connect_redis(redis_url)
    claims = Claims(redis=redis, prefix=prefix, retain=600.0, deadline=5.0, metrics=Metrics())
    plan = world.beacons[0]
    devices = [(udid, at) for udid, (triple, at) in probe.sent.items() if triple == plan.triple]
    try:
        for each in plan.campaigns:
            record = each.record
            if record.delay != 86_400:
                continue
            requests = [
                ClaimRequest(record.id, udid, b"another detectio", at + 60, record.delay)
                for udid, at in devices
            ]
            answers = await claims.take(requests, time.time())
            free = [answer is None for answer in answers]
            assert free == [record.name.startswith("large")] * len(devices), record.name
    finally:
        await redis.aclose()
