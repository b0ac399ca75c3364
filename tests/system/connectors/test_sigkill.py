"""Connector workers killed, and some frozen, at random moments: every call is accounted for, and a
consumer that reads committed sees each result of exactly_once once."""

import asyncio
import os
import random
import signal
from collections import Counter
from datetime import UTC, datetime
from itertools import count

import pytest

from tests.servers.http_service import serving
from tests.servers.waiting import eventually
from tests.system.connectors.customers import EACH_ANSWER, SETTINGS, Customers, account, by_path
from tests.system.kafka.stream import CommittedTopics
from tests.system.rig import Rig
from tests.system.world import World

FULL = "PROXIMITY_TEST_FULL" in os.environ
ROUNDS = 12 if FULL else 3
BURST = 1200 if FULL else 400
KILLED = {
    **SETTINGS,
    "KAFKA_SESSION_TIMEOUT": "2",
    "DRAIN_TIMEOUT": "5",
    "MAX_DETECTION_AGE": "90" if FULL else "20",
}


@pytest.mark.timeout(2400)
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
async def test_kills_under_load(
    stores: Rig, kafka_bootstrap: str, topic_prefix: str, delivery: str
) -> None:
    dice, numbers = random.Random(int(os.environ.get("PROXIMITY_TEST_SEED", "5"))), count()
    stores.environment |= {**KILLED, "DELIVERY": delivery}
    topics, calls = (
        CommittedTopics(kafka_bootstrap, topic_prefix, f"{topic_prefix}g.{role}", source=source)
        for role, source in (("trigger", "detections"), ("connector", "connector-calls"))
    )
    async with (
        serving(by_path(EACH_ANSWER)) as service,
        topics.counting("notifications") as published,
    ):
        customers = Customers(World(datetime.now(UTC).replace(microsecond=0)))
        for name in EACH_ANSWER:
            customers.add(name, service.url(f"/{name}"))
        await customers.world.save(stores.environment["DATABASE_URL"])
        await topics.create()
        trigger = stores.trigger()
        pair = [stores.start("run", "--role", "connector") for _ in range(2)]
        for each in (trigger, *pair):
            await each.until_ready()
        for number in range(ROUNDS):
            wanted = await published() + dice.randint(1, BURST // 5)
            names = [dice.choice(list(customers.of)) for _ in range(BURST)]
            await topics.publish(
                customers.of[name].detection(f"phone {next(numbers)}") for name in names
            )

            async def under_way(wanted: int = wanted) -> bool:
                assert all(each.process.poll() is None for each in pair)
                return await published() >= wanted

            await eventually(under_way, what="calls are answered")
            victim = pair.pop(dice.randrange(2))
            if number % 2 and delivery == "exactly_once":
                victim.process.send_signal(signal.SIGSTOP)
                await asyncio.sleep(4)  # longer than its session, so that others own its partitions
                victim.process.send_signal(signal.SIGCONT)
                pair.append(victim)
            else:
                victim.kill()
                pair.append(stores.start("run", "--role", "connector"))
        await topics.until_done()
        await calls.until_done(deadline=150)
        for each in (trigger, *pair):
            await each.until_ready()
            await each.stop()

    found = await account(topics, customers)
    expected = {name: set(ids) for name, ids in found.calls.items()}
    notified = Counter(each["id"] for sent in found.notifications.values() for each in sent)
    letters = Counter(number for sent in found.letters.values() for number, _ in sent)
    assert sum(map(len, expected.values())) == ROUNDS * BURST
    assert set(notified) == expected["quick"] | expected["slow"]
    assert set(letters) == expected["fails"] | expected["resets"]
    assert found.declined("declines") == expected["declines"]
    # A kill repeats the calls in flight (32 a company), not those behind one that waits.
    repeats = notified.total() - len(notified)
    assert repeats <= (ROUNDS * 2 * 32 if delivery == "at_least_once" else 0)
    assert delivery == "at_least_once" or letters.total() == len(letters)
    requested = {received.id for received in service.received}
    assert set().union(*expected.values()) - requested <= expected["resets"]
    assert requested <= set().union(*expected.values())
