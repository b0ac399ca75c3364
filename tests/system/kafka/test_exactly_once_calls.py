"""DELIVERY=exactly_once where calls finish in any order: under kills and freezes a consumer that
reads committed sees each notification and each dead letter once, and none is missing."""

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
from tests.system.connectors.accounts import account
from tests.system.connectors.customers import EACH_ANSWER, SECRET_KEY, Customers, by_path
from tests.system.kafka.stream import CommittedTopics
from tests.system.rig import Command, Rig
from tests.system.world import World

FULL = "PROXIMITY_TEST_FULL" in os.environ
ROUNDS = 8 if FULL else 2
BURST = 1500 if FULL else 400
SETTINGS = {
    "SECRET_KEY": SECRET_KEY,
    "CONNECTOR_ALLOW_NETWORKS": "127.0.0.0/8",
    "KAFKA_SESSION_TIMEOUT": "2",
    "DRAIN_TIMEOUT": "5",
    "DELIVERY": "exactly_once",
    "MAX_DETECTION_AGE": "90" if FULL else "25",
}


@pytest.fixture
def committed(kafka_bootstrap: str, topic_prefix: str) -> CommittedTopics:
    return CommittedTopics(kafka_bootstrap, topic_prefix, f"{topic_prefix}g.trigger")


@pytest.fixture
def calls(kafka_bootstrap: str, topic_prefix: str) -> CommittedTopics:
    group = f"{topic_prefix}g.connector"
    return CommittedTopics(kafka_bootstrap, topic_prefix, group, source="connector-calls")


@pytest.mark.timeout(1200 if FULL else 240)
async def test_each_result_is_seen_once(
    rig: Rig,
    committed: CommittedTopics,
    calls: CommittedTopics,
    redis_url: str,
    sqlite_url: str,
) -> None:
    dice = random.Random(int(os.environ.get("PROXIMITY_TEST_SEED", "5")))
    numbers = count()
    async with (
        serving(by_path(EACH_ANSWER)) as service,
        committed.counting("notifications") as sent,
    ):
        customers = Customers(World(datetime.now(UTC).replace(microsecond=0)))
        for name in EACH_ANSWER:
            customers.add(name, service.url(f"/{name}"))
        await customers.world.save(sqlite_url)
        await committed.create()
        settings = {**SETTINGS, "REDIS_URL": redis_url, "DATABASE_URL": sqlite_url}
        trigger = rig.trigger(**settings)
        pair = [_connector(rig, settings), _connector(rig, settings)]
        for each in (trigger, *pair):
            await each.until_ready()
        for number in range(ROUNDS * 2):
            before = await sent()
            names = [dice.choice(list(customers.of)) for _ in range(BURST)]
            await committed.publish(
                [customers.of[name].detection(f"phone {next(numbers)}") for name in names]
            )

            async def under_way(wanted: int = before + dice.randint(1, BURST // 5)) -> bool:
                return await sent() >= wanted

            await eventually(under_way, deadline=60, what="calls are answered")
            for each in pair:
                await each.until_ready()
            victim = dice.randrange(2)
            if number % 2:
                await _freeze(pair[victim])
            else:
                pair[victim].kill()
                pair[victim] = _connector(rig, settings)
        await committed.until_done()
        await calls.until_done(deadline=150)
        for each in (trigger, *pair):
            await each.until_ready()
            await each.stop()

    accounts = await account(committed, {c.company.id: n for n, c in customers.of.items()})
    requested = Counter(number for ids in accounts.calls.values() for number in ids)
    notified = Counter(each["id"] for sent in accounts.notifications.values() for each in sent)
    letters = Counter(number for ids in accounts.letters.values() for number in ids)
    print(f"{requested.total()} calls, {notified.total()} notifications, {letters.total()} letters")
    assert len(requested) == requested.total() == 2 * ROUNDS * BURST
    assert len(notified) == notified.total()
    assert len(letters) == letters.total()
    assert set(notified) == set(accounts.calls["quick"]) | set(accounts.calls["slow"])
    assert set(letters) == set(accounts.calls["fails"]) | set(accounts.calls["resets"])


async def _freeze(frozen: Command) -> None:
    """Freeze a member past its session timeout, so that its partitions get another owner."""
    frozen.process.send_signal(signal.SIGSTOP)
    await asyncio.sleep(4)  # the session's length is the test's subject
    frozen.process.send_signal(signal.SIGCONT)


def _connector(rig: Rig, settings: dict[str, str]) -> Command:
    return rig.start("run", "--role", "connector", **settings)
