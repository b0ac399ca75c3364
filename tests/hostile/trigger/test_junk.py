"""Phones that send what cannot be read: dead letters, and everybody else is served."""

import json
import os
import time

import pytest

from tests.acceptance.rig import Rig
from tests.acceptance.topics import PARTITIONS, TopicSet
from tests.acceptance.traffic import Message
from tests.hostile.trigger.neighbours import Neighbours
from tests.servers.waiting import eventually

FULL = "PROXIMITY_TEST_FULL" in os.environ
INVENTED = 60_000 if FULL else 12_000
RUN = 1000  # DEAD_LETTER_RUN's default, and more than any phone needs to be heard


def junk(udid: str, minor: int = 2) -> Message:
    """A detection by a phone whose udid is too long."""
    body = {"uuid": "0" * 32, "major": 1, "minor": minor, "proximity": 1}
    value = json.dumps(body | {"device": {"udid": udid.ljust(256, "x")}}).encode()
    return Message(0, udid.encode(), value)


@pytest.mark.timeout(180)
async def test_one_phone_and_one_that_invents_phones(
    rig: Rig, topics: TopicSet, redis_url: str, sqlite_url: str
) -> None:
    """A thousand bad records of one phone in a row stopped the trigger, at every start."""
    neighbours = Neighbours()
    await neighbours.world.save(sqlite_url)
    await topics.create()
    settings = {"REDIS_URL": redis_url, "DATABASE_URL": sqlite_url}
    await topics.publish(junk("one phone") for _ in range(2 * RUN))
    trigger = rig.trigger(**settings)
    await trigger.until_ready()
    await topics.until_done()
    assert await topics.count("dead-letters") == 2 * RUN

    # Every partition gets many times the limit, and before and behind it a phone that is right.
    invented = [junk(f"phone {time.time()} {number}") for number in range(INVENTED)]
    assert INVENTED > 2 * RUN * PARTITIONS - 1
    async with neighbours.quiet_stream(topics), topics.counting("notifications") as count:
        await eventually(count, what="B is served before")
        await topics.publish(invented)

        async def all_aside() -> bool:
            assert trigger.process.poll() is None, trigger.output
            return await topics.count("dead-letters") == 2 * RUN + INVENTED

        await eventually(all_aside, deadline=90, what="all of it is aside")
        served = await count()

        async def more() -> bool:
            return await count() > served

        await eventually(more, what="B is served behind")
    await topics.until_done()
    samples = await trigger.metrics()
    assert samples.by("dead_letters", "reason") == {"invalid_field": 2 * RUN + INVENTED}
    await trigger.stop()
