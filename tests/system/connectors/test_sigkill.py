"""Two connector workers killed at random moments: every call is accounted for, none twice."""

import os
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from itertools import count

import pytest

from tests.servers.http_service import serving
from tests.servers.waiting import eventually
from tests.system.connectors.accounts import account
from tests.system.connectors.customers import EACH_ANSWER, SECRET_KEY, Customers, by_path
from tests.system.rig import Command, Rig
from tests.system.topics import TopicSet
from tests.system.traffic import Message
from tests.system.world import World

FULL = bool(os.environ.get("PROXIMITY_TEST_FULL"))
ROUNDS = 12 if FULL else 3
BURST = 1200 if FULL else 400
SEED = 5
SETTINGS = {
    "SECRET_KEY": SECRET_KEY,
    "CONNECTOR_ALLOW_NETWORKS": "127.0.0.0/8",
    "KAFKA_SESSION_TIMEOUT": "2",
    "DRAIN_TIMEOUT": "5",
    "MAX_DETECTION_AGE": "90" if FULL else "20",
}


@pytest.mark.timeout(600 if FULL else 150)
async def test_kills_under_load(
    rig: Rig, topics: TopicSet, call_topics: TopicSet, redis_url: str, sqlite_url: str
) -> None:
    dice = random.Random(SEED)
    numbers = count()
    async with (
        serving(by_path(EACH_ANSWER)) as service,
        topics.counting("notifications") as published,
    ):
        customers = Customers(World(datetime.now(UTC).replace(microsecond=0)))
        for name in EACH_ANSWER:
            customers.add(name, service.url(f"/{name}"))
        await customers.world.save(sqlite_url)
        await topics.create()
        settings = {**SETTINGS, "REDIS_URL": redis_url, "DATABASE_URL": sqlite_url}
        trigger = rig.trigger(**settings)
        pair = [_connector(rig, settings), _connector(rig, settings)]
        for each in (trigger, *pair):
            await each.until_ready()
        for _ in range(ROUNDS):
            before = await published()
            await topics.publish(_burst(customers, dice, numbers))
            await _until(published, before + dice.randint(1, BURST // 4), pair)
            victim = dice.randrange(2)
            pair[victim].kill()
            pair[victim] = _connector(rig, settings)
        await topics.until_done()
        await call_topics.until_done()
        for each in (trigger, *pair):
            await each.until_ready()
            await each.stop()
    names = {customer.company.id: name for name, customer in customers.of.items()}
    accounts = await account(topics, names)
    expected = {name: set(calls) for name, calls in accounts.calls.items()}
    assert sum(map(len, expected.values())) == ROUNDS * BURST

    published_ids = {
        name: {each["id"] for each in sent} for name, sent in accounts.notifications.items()
    }
    assert published_ids == {name: expected[name] for name in ("quick", "slow")}
    letters = {name: set(ids) for name, ids in accounts.letters.items()}
    assert letters == {name: expected[name] for name in ("fails", "resets")}
    assert accounts.declined("declines") == expected["declines"]
    _check_repeats(accounts.notifications, expected)
    requested = {received.id for received in service.received}
    assert requested <= set().union(*expected.values())
    assert (
        requested >= expected["quick"] | expected["slow"] | expected["declines"] | expected["fails"]
    )


def _check_repeats(notifications: dict, expected: dict[str, set[str]]) -> None:
    """A kill repeats the calls in flight, not those that finished after a waiting call."""
    sent = sum(map(len, notifications.values()))
    distinct = len(expected["quick"]) + len(expected["slow"])
    assert sent - distinct <= 0.1 * distinct, (sent, distinct)


def _connector(rig: Rig, settings: dict[str, str]) -> Command:
    return rig.start("run", "--role", "connector", **settings)


def _burst(customers: Customers, dice: random.Random, numbers: count) -> list[Message]:
    names = list(customers.of)
    return [
        customers.of[dice.choice(names)].detection(f"phone {next(numbers)}") for _ in range(BURST)
    ]


async def _until(
    published: Callable[[], Awaitable[int]], wanted: int, pair: Sequence[Command]
) -> None:
    async def enough() -> bool:
        for each in pair:
            assert each.process.poll() is None, each.output
        return await published() >= wanted

    await eventually(enough, deadline=60, what=f"{wanted} notifications")
