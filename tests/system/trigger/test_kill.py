"""A kill in the middle of one company's bulk: nothing is lost, and repeats are identical."""

import json
import os
import random
from collections import Counter

import pytest

from tests.system.rig import Rig
from tests.system.topics import TopicSet
from tests.system.trigger.neighbours import Neighbours

FULL = "PROXIMITY_TEST_FULL" in os.environ
KILLS = 10 if FULL else 2
LOUD, QUIET = (3000, 3000) if FULL else (400, 400)
CAMPAIGNS = 20
SEED = int(os.environ.get("PROXIMITY_TEST_SEED", "31"))
SETTINGS = {"KAFKA_SESSION_TIMEOUT": "2", "DRAIN_TIMEOUT": "5", "BATCH_RECORDS": "200"}


@pytest.mark.timeout(900 if FULL else 180)
async def test_a_kill_in_the_middle_of_the_bulk(
    rig: Rig, topics: TopicSet, redis_url: str, sqlite_url: str
) -> None:
    neighbours, dice = Neighbours(), random.Random(SEED)
    neighbours.campaigns(CAMPAIGNS // 2, delay=86_400)
    neighbours.campaigns(CAMPAIGNS // 2)
    await neighbours.world.save(sqlite_url)
    await topics.create()
    settings = {**SETTINGS, "REDIS_URL": redis_url, "DATABASE_URL": sqlite_url}
    trigger = rig.trigger(**settings)
    await trigger.until_ready()
    async with topics.counting("notifications") as count:
        for _ in range(KILLS):
            before = await count()
            messages = neighbours.of_loud(LOUD) + neighbours.of_quiet(QUIET)
            dice.shuffle(messages)
            await topics.publish(messages)
            enough = before + dice.randint(LOUD, LOUD * CAMPAIGNS // 2)
            while await count() < enough:
                assert trigger.process.poll() is None, trigger.output
            trigger.kill()
            trigger = rig.trigger(**settings)
            await topics.until_done()
    await trigger.until_ready()
    await trigger.stop()

    sent: Counter[tuple[str, int]] = Counter()
    for number, body in {
        body["id"]: body
        for record in await topics.read("notifications")
        if (body := json.loads(record.value or b""))
    }.items():
        assert number
        sent[body["device"]["udid"], body["campaign"]["id"]] += 1
    # One id for each campaign on each device: the claim knew its owner after the kill.
    assert set(sent.values()) == {1}
    assert len(sent) == KILLS * (LOUD * CAMPAIGNS + QUIET)
