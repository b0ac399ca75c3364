"""Caps while triggers and connectors are killed and services decline and fail: no device is over a
cap, and what failed calls gave back is free again."""

import random
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from typing import Any

from tests.servers.http_service import ReceivedRequest, content, replying, serving
from tests.servers.waiting import eventually
from tests.system.connectors.customers import SETTINGS, Customers, account
from tests.system.rig import Rig
from tests.system.topics import TopicSet
from tests.system.world import World

ROUNDS = 4
BURST = 200
DEVICES = [f"phone {number}" for number in range(160)]  # most keep room for the next round
MOST = 2
KILLED = {**SETTINGS, "KAFKA_SESSION_TIMEOUT": "2", "DRAIN_TIMEOUT": "5"}


class Moody:
    """A service that answers, declines or fails, always the same to the same call; or answers."""

    def __init__(self) -> None:
        self.is_calm = False

    async def answer(self, received: ReceivedRequest, writer: Any) -> None:
        mood = 0 if self.is_calm else int(received.id[-4:], 16) % 3
        answers = content(after=0.02), replying(204, after=0.05), replying(404)
        await answers[mood](received, writer)


async def test_nobody_is_over_a_cap_and_nothing_given_back_is_lost(
    stores: Rig, topics: TopicSet, call_topics: TopicSet
) -> None:
    dice, moody = random.Random(3), Moody()
    stores.environment |= KILLED
    async with serving(moody.answer) as service, topics.counting("connector-calls") as calls:
        customers = Customers(World(datetime.now(UTC).replace(microsecond=0)))
        customer = customers.add("moody", service.url("/moody"))
        customer.company.caps = [{"max": MOST, "per": "hour"}, {"max": 9, "per": "month"}]
        for campaign in customer.beacon.campaigns:
            campaign.record.delay = 0
        await customers.world.save(stores.environment["DATABASE_URL"])
        await topics.create()
        roles = [stores.trigger(), stores.start("run", "--role", "connector")]
        for each in roles:
            await each.until_ready()
        for number in range(ROUNDS):
            begun = await calls()
            await topics.publish(customer.detection(dice.choice(DEVICES)) for _ in range(BURST))
            await eventually(partial(_more_than, calls, begun), what="calls are made")
            victim = number % 2
            roles[victim].kill()
            roles[victim] = stores.start("run", "--role", ("trigger", "connector")[victim])
        await _until_done(topics, call_topics)
        found = await account(topics, customers)
        sent = _sent(found.notifications["moody"])
        assert max(sent.values()) <= MOST
        assert sum(sent.values()) < MOST * len(DEVICES), "no place was given back"
        assert found.letters["moody"]
        assert found.declined("moody")

        # A new process remembers no refusal: each device gets what is left of its cap.
        moody.is_calm = True
        await roles[0].stop()
        roles[0] = stores.trigger()
        await topics.publish(customer.detection(udid) for udid in DEVICES * (MOST + 1))
        await _until_done(topics, call_topics)
        sent = _sent((await account(topics, customers)).notifications["moody"])
        assert sent == dict.fromkeys(DEVICES, MOST)
        for each in roles:
            await each.stop()


async def _until_done(topics: TopicSet, call_topics: TopicSet) -> None:
    await topics.until_done()
    await call_topics.until_done()


async def _more_than(count: Any, before: int) -> bool:
    return bool(await count() > before)


def _sent(notifications: list[dict[str, Any]]) -> Counter[str]:
    """The notifications of each device, repeats left out."""
    return Counter({each["id"]: each["device"]["udid"] for each in notifications}.values())
