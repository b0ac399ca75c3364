"""Caps while triggers and connectors are killed and services decline and fail: no device is over a
cap, and what failed calls gave back is free again."""

import random
from collections import Counter
from typing import Any

from tests.servers.http_service import ReceivedRequest, content, replying, serving
from tests.servers.proximity import Rig
from tests.system.connectors.customers import SETTINGS, account, add_customer
from tests.system.crew import Crew
from tests.system.topics import TopicSet
from tests.system.traffic import detection
from tests.system.world import World

ROUNDS = 4
BURST = 200
DEVICES = [f"phone {number}" for number in range(160)]  # most keep room for the next round
MOST = 2


class Moody:
    """A service that answers, declines or fails, always the same to the same call; or answers."""

    def __init__(self) -> None:
        self.is_calm = False

    async def answer(self, received: ReceivedRequest, writer: Any) -> None:
        mood = 0 if self.is_calm else int(received.id[-4:], 16) % 3
        answers = content(after=0.02), replying(204, after=0.05), replying(404)
        await answers[mood](received, writer)


async def test_nobody_is_over_a_cap_and_nothing_given_back_is_lost(
    stores: Rig, topics: TopicSet
) -> None:
    dice, moody, world = random.Random(3), Moody(), World()
    # (A machine that stands still lets no call fail.)
    stores.settings |= SETTINGS | {"CONNECTOR_CALL_TIMEOUT": "30"}
    async with serving(moody.answer) as service:
        beacon = add_customer(world, "moody", service.url())
        beacon.venue.company.caps = [{"max": MOST, "per": "hour"}, {"max": 9, "per": "month"}]
        world.campaigns[0].delay = 0
        await world.save(stores.settings["DATABASE_URL"])
        await topics.create()
        roles = [Crew(stores, role, 1, dice) for role in ("trigger", "connector")]
        for each in roles:
            await each.until_ready()
        for number in range(ROUNDS):
            begun = await topics.count("connector-calls")
            await topics.publish(detection(beacon, dice.choice(DEVICES)) for _ in range(BURST))
            await topics.until("connector-calls", begun + 1)
            await roles[number % 2].harm("kill")
        await topics.until_done("trigger", "connector")
        found = await account(topics, world)
        sent = _sent(found.notifications["moody"])
        assert max(sent.values()) <= MOST
        assert sum(sent.values()) < MOST * len(DEVICES), "no place was given back"
        assert found.letters["moody"]
        assert found.declined("moody")

        # A new process remembers no refusal: each device gets what is left of its cap.
        moody.is_calm = True
        await roles[0].harm("restart")
        await topics.publish(detection(beacon, udid) for udid in DEVICES * (MOST + 1))
        await topics.until_done("trigger", "connector")
        sent = _sent((await account(topics, world)).notifications["moody"])
        assert sent == dict.fromkeys(DEVICES, MOST)
        for each in roles:
            await each.stop()


def _sent(notifications: list[dict[str, Any]]) -> Counter[str]:
    """The notifications of each device, repeats left out."""
    return Counter({each["id"]: each["device"]["udid"] for each in notifications}.values())
