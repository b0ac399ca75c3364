"""Phones that send junk: it becomes dead letters, and all other phones are served."""

import json
import os
import time

import pytest

from tests.system.neighbour_latency import MIB, assert_not_delayed, create_with_broker_time
from tests.system.rig import Rig
from tests.system.topics import PARTITIONS, TopicSet
from tests.system.traffic import Message
from tests.system.trigger.neighbours import Neighbours, Scene

pytestmark = pytest.mark.alone

FULL = "PROXIMITY_TEST_FULL" in os.environ
ROUNDS = 4  # as test_bulk
INVENTED = 60_000 if FULL else 12_000
RUN = 1000  # DEAD_LETTER_RUN's default, and more than any phone needs to be understood

IN_FLIGHT_BYTES = 32 * MIB
# In flight, and as much again for what Python, aiokafka and the sockets hold of it.
MOST_GROWTH = 2 * IN_FLIGHT_BYTES


def junk(udid: str, minor: int = 2) -> Message:
    """A detection by a phone whose udid is too long."""
    body = {"uuid": "0" * 32, "major": 1, "minor": minor, "proximity": 1}
    value = json.dumps(body | {"device": {"udid": udid.ljust(256, "x")}}).encode()
    return Message(0, udid.encode(), value)


def invented(count: int) -> list[Message]:
    """Such detections, each by another phone."""
    return [junk(f"phone {time.time()} {number}") for number in range(count)]


@pytest.mark.timeout(300 if FULL else 180)
async def test_one_phone_and_one_that_invents_phones(
    stores: Rig, topics: TopicSet, kafka_bootstrap: str
) -> None:
    """A thousand bad records of one phone in a row stopped the trigger, at every start."""
    neighbours = Neighbours()
    await neighbours.world.save(stores.environment["DATABASE_URL"])
    await create_with_broker_time(kafka_bootstrap, topics)
    await topics.publish(junk("one phone") for _ in range(2 * RUN))
    trigger = stores.trigger(IN_FLIGHT_BYTES=str(IN_FLIGHT_BYTES))
    await trigger.until_ready()
    await topics.until_done()
    assert await topics.count("dead-letters") == 2 * RUN

    # Every partition gets many times the limit, and before and behind it a phone that is right.
    assert INVENTED > 2 * RUN * PARTITIONS - 1
    scene = Scene(trigger, topics, kafka_bootstrap, neighbours)
    one_phone = await assert_not_delayed(
        lambda: scene.b_is_notified([junk("one phone")] * (2 * RUN), 2 * RUN, "dead-letters"),
        ROUNDS,
    )
    inventor = await assert_not_delayed(
        lambda: scene.b_is_notified(invented(INVENTED), INVENTED, "dead-letters"), ROUNDS
    )
    scene.memory.assert_growth_below(MOST_GROWTH)
    samples = await trigger.metrics()
    assert samples.by("dead_letters", "reason") == {
        "invalid_field": await topics.count("dead-letters")
    }
    print(one_phone, inventor, scene.memory)
    await trigger.stop()
