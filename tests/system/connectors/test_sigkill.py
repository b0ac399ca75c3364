"""Connectors killed, and some frozen, at random moments: every call is accounted for, a consumer
that reads committed sees each result of exactly_once once, and no device is over a cap."""

import os
import random
from collections import Counter
from itertools import count
from typing import Any

import pytest

from tests.servers.http_service import ReceivedRequest, content, replying, resetting, serving
from tests.servers.proximity import Rig
from tests.system.connectors.customers import SETTINGS, account, add_customer, by_path
from tests.system.crew import Crew
from tests.system.topics import TopicSet
from tests.system.traffic import detection
from tests.system.world import World

FULL = "PROXIMITY_TEST_FULL" in os.environ
ROUNDS = 12 if FULL else 2
BURST = 1200 if FULL else 400
# A customer's name, and how its service answers.
ANSWERS = {
    "quick": content(after=0.02),
    "slow": content(after=0.3),
    "declines": replying(204, after=0.02),
    "fails": replying(404, after=0.02),
    "resets": resetting,  # opens its breaker: most of its calls wait
}


@pytest.mark.timeout(2400)
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
async def test_kills_under_load(stores: Rig, committed: TopicSet, delivery: str) -> None:
    dice, numbers = random.Random(int(os.environ.get("PROXIMITY_TEST_SEED", "5"))), count()
    topics, world, answers = committed, World(), dict(ANSWERS)
    # (A machine that stands still lets no call fail.)
    stores.settings |= SETTINGS | {"DELIVERY": delivery, "CONNECTOR_CALL_TIMEOUT": "30"}
    async with serving(by_path(answers)) as service:
        beacons = [add_customer(world, name, service.url(f"/{name}")) for name in answers]
        await world.save(stores.settings["DATABASE_URL"])
        await topics.create()
        trigger = await stores.ready("trigger")
        pair = Crew(stores, "connector", 2, dice)
        await pair.until_ready()
        for number in range(ROUNDS):
            wanted = await topics.count("notifications") + dice.randint(1, BURST // 5)
            await topics.publish(
                detection(dice.choice(beacons), f"phone {next(numbers)}") for _ in range(BURST)
            )
            await topics.until("notifications", wanted, pair.assert_running)
            freezes = number % 2 and delivery == "exactly_once"
            await pair.harm("freeze" if freezes else "kill")
        answers["resets"] = content()  # so that nothing has to wait until it is too old
        await topics.until_done("trigger", "connector")
        await trigger.stop()
        await pair.stop()

    found = await account(topics, world)
    expected = {name: set(ids) for name, ids in found.calls.items()}
    notified = Counter(each["id"] for sent in found.notifications.values() for each in sent)
    letters = Counter(number for sent in found.letters.values() for number, _ in sent)
    assert sum(map(len, expected.values())) == ROUNDS * BURST
    assert set(notified) - expected["resets"] == expected["quick"] | expected["slow"]
    assert set(letters) - expected["resets"] == expected["fails"]
    assert found.declined("declines") == expected["declines"]
    assert found.declined("resets") == set()
    # A kill repeats the calls in flight (32 a company), not those behind one that waits.
    repeats = notified.total() - len(notified)
    assert repeats <= (ROUNDS * 3 * 32 if delivery == "at_least_once" else 0)
    assert delivery == "at_least_once" or letters.total() == len(letters)
    everything = set[str]().union(*expected.values())
    assert {received.id for received in service.received} == everything


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
        for number in range(4):
            begun = await topics.count("connector-calls")
            await topics.publish(detection(beacon, dice.choice(DEVICES)) for _ in range(200))
            await topics.until("connector-calls", begun + 1)
            await roles[number % 2].harm("kill")
        await topics.until_done("trigger", "connector")
        found = await account(topics, world)
        sent = _sent(found.notifications["moody"])
        assert max(sent.values()) <= MOST
        assert sum(sent.values()) < MOST * len(DEVICES), "no place was given back"
        assert found.letters["moody"]
        assert found.declined("moody")

        # A new process has no refusals in memory: each device gets the rest of its cap.
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
