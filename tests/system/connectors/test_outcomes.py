"""A service that answers, declines, lies, fails, hangs: each outcome, each call accounted for."""

import time
from typing import Any

from catalog.redis_connection import connect_redis
from engine.connector.stores import read_call_history
from tests.servers.http_service import (
    CONTENT,
    Answer,
    ReceivedRequest,
    content,
    hanging,
    replying,
    serving,
)
from tests.system.connectors.customers import (
    SETTINGS,
    TOKEN,
    Account,
    account,
    add_customer,
    by_path,
)
from tests.system.rig import Rig
from tests.system.topics import TopicSet
from tests.system.traffic import detection
from tests.system.world import World

DEVICES = 3  # below what opens a breaker, with three tries each


def first_busy_then_content() -> Answer:
    """429 with a Retry-After to each call's first try."""
    seen: set[str] = set()

    async def answer(received: ReceivedRequest, writer: Any) -> None:
        first = received.id not in seen
        seen.add(received.id)
        await (replying(429, retry_after="1") if first else content())(received, writer)

    return answer


ANSWERS = {
    "content": content(),
    "busy": first_busy_then_content(),
    "declines": replying(204),
    "unavailable": replying(503),
    "lies": replying(200, CONTENT | {"title": 5}),
    "hangs": hanging,
}
PUBLISHED = {"content", "busy"}
REASONS = {
    "unavailable": "connector_status",
    "lies": "connector_reply",
    "hangs": "connector_timeout",
    "private": "connector_forbidden",
    "unreadable": "connector_secret",
}


async def test_each_outcome(stores: Rig, topics: TopicSet) -> None:
    world = World()
    async with serving(by_path(ANSWERS)) as service:
        beacons = {name: add_customer(world, name, service.url(f"/{name}")) for name in ANSWERS}
        beacons["private"] = add_customer(world, "private", "http://10.255.255.1/")
        beacons["none"] = add_customer(world, "none", None)
        broken = {"parameters": "not a token"}
        beacons["unreadable"] = add_customer(world, "unreadable", service.url(), **broken)
        await world.save(stores.environment["DATABASE_URL"])
        await topics.create()
        stores.environment |= SETTINGS | {"CONNECTOR_CALL_TIMEOUT": "1.5"}
        trigger, connector = await stores.ready("trigger"), await stores.ready("connector")
        device = {"name": "android", "id_connector": 77}
        await topics.publish(
            detection(beacon, udid, device={"udid": udid, **device})
            for name, beacon in beacons.items()
            for udid in (f"{name} {number}" for number in range(DEVICES))
        )
        await topics.until_done("trigger", "connector")
        outcomes = (await connector.metrics()).by("connector_calls", "outcome")
        decided = (await trigger.metrics()).by("decisions", "reason")
        await connector.stop()
        await trigger.stop()
        logs = connector.output + trigger.output
    found = await account(topics, world)
    assert decided["no_connector"] == DEVICES  # of the company that has none: no call, no letter
    check_accounts(found, set(beacons) - {"none"})
    assert outcomes["published"] == len(PUBLISHED) * DEVICES
    assert outcomes["declined"] == DEVICES
    assert {outcomes[reason] for reason in REASONS.values()} == {DEVICES}
    assert TOKEN not in logs
    assert f":{service.port}/" not in logs
    await check_past_calls(found, world, stores.environment)


def check_accounts(found: Account, companies: set[str]) -> None:
    assert found.calls.keys() == companies
    for calls in found.calls.values():
        assert sorted(calls.values()) == [1] * DEVICES
    published = {name: len(sent) for name, sent in found.notifications.items()}
    assert published == dict.fromkeys(PUBLISHED, DEVICES)
    reasons = {name: [reason for _, reason in letters] for name, letters in found.letters.items()}
    assert reasons == {name: [reason] * DEVICES for name, reason in REASONS.items()}
    assert {name for name in companies if found.declined(name)} == {"declines"}
    notification = found.notifications["content"][0]
    assert {name: notification[name] for name in CONTENT} == CONTENT
    assert notification["device"]["id_connector"] == 77


async def check_past_calls(found: Account, world: World, environment: dict[str, str]) -> None:
    """Each company sees its own calls only, without data of devices and services."""
    redis = connect_redis(environment["REDIS_URL"])
    words = ""
    for company in set(world.keys.values()):
        name, prefix = company.name, environment["REDIS_PREFIX"]
        history = await read_call_history(redis, prefix, company.id, now=time.time(), deadline=30)
        assert {call.id for call in history.calls} == set(found.calls.get(name, ())), name
        expected = "declined" if name == "declines" else REASONS.get(name, "published")
        assert {call.outcome for call in history.calls} <= {expected}, name
        words += " ".join(call.detail for call in history.calls)
    await redis.aclose()
    assert TOKEN not in words
    assert "content 0" not in words
