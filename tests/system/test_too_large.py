"""A message that its topic refuses becomes a dead letter, and the others are published."""

import json

import pytest

from tests.system.probe import Probe
from tests.system.rig import Rig
from tests.system.scene import Scene
from tests.system.topics import TopicSet
from tests.system.traffic import Message
from tests.system.world import small_world

LIMIT = 1_048_588  # Kafka's default of message.max.bytes


@pytest.mark.timeout(120)
async def test_too_large_messages_become_dead_letters(stores: Rig, topics: TopicSet) -> None:
    world = small_world()
    first, second = world.beacons[:2]
    large = {"html": "x" * LIMIT, "format": "html", "delay": 86_400}
    world.campaign(first.venue, "large", [first], **large)
    scene = await Scene(stores, topics, world).begin()
    # Not JSON, and with the headers of a dead letter more than the topic takes.
    heavy = Message(0, b"heavy", b"x" * (LIMIT - 150))
    trigger, probe = await scene.trigger(), Probe(topics)
    for _ in range(2):
        assert "always 0" in await probe.fires(first.triple)
        assert "always 1" in await probe.fires(second.triple)
    await topics.publish([heavy])
    await topics.until_done()
    await trigger.stop()
    detections = await topics.count("detections")
    replay = stores.start("dead-letters", "replay")
    assert await replay.ended() == 1
    assert replay.output.count("the detection itself is counted") == 2
    assert "0 dead letters put back" in replay.output
    assert await topics.count("detections") == detections

    letters = await topics.read("dead-letters")
    assert [dict(letter.headers)["reason"] for letter in letters] == [b"too_large"] * 3
    (stripped,) = [letter for letter in letters if letter.key == b"heavy"]
    assert stripped.value is None
    assert dict(stripped.headers)["detail"].startswith(b"malformed_json")
    original = json.loads(next(letter.value for letter in letters if letter.value))
    assert original["minor"] == first.record.minor
