"""A service that answers, declines, lies, fails, hangs: each outcome, each call accounted for."""

import time
from collections import Counter
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
from tests.servers.proximity import Rig
from tests.system.connectors.customers import SETTINGS, TOKEN, account, add_customer, by_path
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
OUTCOMES = {
    "content": "published",
    "busy": "published",
    "declines": "declined",
    "unavailable": "connector_status",
    "lies": "connector_reply",
    "hangs": "connector_timeout",
    "private": "connector_forbidden",
    "unreadable": "connector_secret",
}


async def test_each_outcome(stores: Rig, topics: TopicSet) -> None:
    world = World()
    async with serving(by_path(ANSWERS)) as service:
        for name in ANSWERS:
            add_customer(world, name, service.url(f"/{name}"))
        add_customer(world, "private", "http://10.255.255.1/")
        add_customer(world, "unreadable", service.url(), parameters="not a token")
        add_customer(world, "none", None)
        await world.save(stores.settings["DATABASE_URL"])
        await topics.create()
        stores.settings |= SETTINGS | {"CONNECTOR_CALL_TIMEOUT": "1.5"}
        trigger, connector = await stores.ready("trigger"), await stores.ready("connector")
        await topics.publish(
            detection(beacon, udid, device={"udid": udid, "name": "android", "id_connector": 77})
            for beacon in world.beacons
            for udid in (f"{beacon.venue.company.name} {number}" for number in range(DEVICES))
        )
        await topics.until_done("trigger", "connector")
        counted = (await connector.metrics()).by("connector_calls", "outcome")
        decided = (await trigger.metrics()).by("decisions", "reason")
        await connector.stop()
        await trigger.stop()
        told = connector.output + trigger.output
    assert f":{service.port}/" not in told
    found = await account(topics, world)
    assert decided["no_connector"] == DEVICES  # of the company that has none: no call, no letter
    assert found.calls.keys() == OUTCOMES.keys()
    of_calls = Counter(OUTCOMES.values())
    assert {each: counted[each] for each in of_calls} == {
        each: companies * DEVICES for each, companies in of_calls.items()
    }
    redis, prefix = (
        connect_redis(stores.settings["REDIS_URL"]),
        stores.settings["REDIS_PREFIX"],
    )
    for company in set(world.keys.values()) - {world.beacons[-1].venue.company}:
        name, calls = company.name, found.calls[company.name]
        assert sorted(calls.values()) == [1] * DEVICES
        sent, letters = found.notifications.get(name, []), found.letters.get(name, [])
        assert len(sent) == (DEVICES if OUTCOMES[name] == "published" else 0)
        assert [reason for _, reason in letters] == (
            [] if OUTCOMES[name] in ("published", "declined") else [OUTCOMES[name]] * DEVICES
        )
        # Each company sees its own calls only, without data of devices and services.
        history = await read_call_history(redis, prefix, company.id, now=time.time(), deadline=30)
        assert {each.id: each.outcome for each in history.calls} == dict.fromkeys(
            calls, OUTCOMES[name]
        )
        told += " ".join(each.detail for each in history.calls)
    await redis.aclose()
    assert TOKEN not in told
    assert "content 0" not in told
    notification = found.notifications["content"][0]
    assert {name: notification[name] for name in CONTENT} == CONTENT
    assert notification["device"]["id_connector"] == 77
