"""A service that answers, declines, lies, fails, hangs: each outcome, each call accounted for, also
while a server is down, and when the connector is stopped."""

import asyncio
import json
import time
import uuid
from collections import Counter
from typing import Any

from catalog.models import Device
from catalog.redis_connection import connect_redis
from engine.connector.stores import CallHistoryReader
from engine.kafka.messages import ConnectorCall, parse
from engine.process.metrics import Metrics
from engine.redis.claims import Claims
from tests.catalog.records import NOON, Records
from tests.redis.claim_requests import ClaimRequest, take
from tests.servers.http_service import (
    CONTENT,
    Answer,
    ReceivedRequest,
    content,
    hanging,
    replying,
    serving,
)
from tests.servers.postgres import PostgresServer, create_database
from tests.servers.proximity import Command, Rig
from tests.servers.redis import RedisServer
from tests.servers.schema import make_schema, opened
from tests.system.connectors.customers import (
    SETTINGS,
    TOKEN,
    account,
    add_customer,
    by_path,
    call,
    publish_calls,
)
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
    redis, prefix = connect_redis(stores.settings["REDIS_URL"]), stores.settings["REDIS_PREFIX"]
    reader = CallHistoryReader(redis=redis, prefix=prefix, deadline=30)
    for company in set(world.keys.values()) - {world.beacons[-1].venue.company}:
        name, calls = company.name, found.calls[company.name]
        assert sorted(calls.values()) == [1] * DEVICES
        sent, letters = found.notifications.get(name, []), found.letters.get(name, [])
        assert len(sent) == (DEVICES if OUTCOMES[name] == "published" else 0)
        assert [reason for _, reason in letters] == (
            [] if OUTCOMES[name] in ("published", "declined") else [OUTCOMES[name]] * DEVICES
        )
        # Each company sees its own calls only, without data of devices and services.
        history = await reader.read(company.id, time.time())
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


async def start(rig: Rig, topics: TopicSet, **settings: str) -> Command:
    rig.settings |= SETTINGS | settings
    await make_schema(rig.settings["DATABASE_URL"])
    await topics.create()
    return await rig.ready("connector")


async def test_sql_that_stops_stops_no_call(
    rig: Rig, topics: TopicSet, redis_url: str, own_postgres: PostgresServer
) -> None:
    url = create_database(own_postgres.admin_url)
    async with serving(content()) as service:
        connector = await start(rig, topics, REDIS_URL=redis_url, DATABASE_URL=url)
        await add_devices(url)
        udids = ("known", "test phone", "stranger")
        await publish_calls(topics, *(call(service.url(), udid) for udid in udids))
        await topics.until("notifications", 3)
        await asyncio.to_thread(own_postgres.kill)
        more = (call(service.url(), udid, delay=0) for udid in ("later", "known"))
        await publish_calls(topics, *more)
        await topics.until("notifications", 5)
        await connector.stop()
    sent = {each.json["device"]["udid"]: each.json["device"] for each in service.received}
    tested = {"known": False, "test phone": True, "stranger": False, "later": None}
    assert {udid: device["test"] for udid, device in sent.items()} == tested
    assert sent["known"]["id_connector"] == 4711
    bodies = await topics.bodies("notifications")
    devices = {body["device"]["udid"]: body["device"] for body in bodies}
    assert devices["known"]["id_connector"] == 4711
    assert "id" not in devices["stranger"]


async def add_devices(url: str) -> None:
    company = Records().company()
    dates = {"create_on": NOON, "update_on": NOON}
    async with opened(url) as database, database.write.begin() as session:
        session.add(Device(company=company, udid="known", id_connector=4711, **dates))
        session.add(Device(company=company, udid="test phone", test=True, **dates))


async def test_redis_down_publishes_content_and_keeps_what_gives_claims_back(
    on_own_redis: Rig, topics: TopicSet, own_redis: RedisServer, topic_prefix: str
) -> None:
    answers = {"": content(), "fails": replying(404)}
    async with serving(by_path(answers)) as service:
        connector = await start(on_own_redis, topics)
        failing = call(service.url("/fails"), "fails")
        assert await takes(own_redis, topic_prefix, failing)
        await asyncio.to_thread(own_redis.kill)
        goods = [call(service.url(), f"phone {number}") for number in range(20)]
        await publish_calls(topics, failing, *goods)
        await topics.until("notifications", 20)
        assert await topics.lag("connector") > 0
        await asyncio.to_thread(own_redis.start)
        await topics.until_done("connector")
        assert await topics.count("dead-letters") == 1
        another = call(service.url(), "fails")
        assert await takes(own_redis, topic_prefix, another), "the claim was given back"
        await connector.stop()


async def test_a_repeated_call_publishes_only_if_its_claim_is_still_its_own(
    on_own_redis: Rig, topics: TopicSet, own_redis: RedisServer, topic_prefix: str
) -> None:
    async with serving(content()) as service:
        lost, held, free = (call(service.url(), udid) for udid in ("lost", "held", "free"))
        # After a crash: the first one gave its claim back, and another detection took it.
        assert await takes(own_redis, topic_prefix, call(service.url(), "lost"))
        assert await takes(own_redis, topic_prefix, held)
        connector = await start(on_own_redis, topics)
        await publish_calls(topics, lost, held, free)
        await topics.until_done("connector")
        await connector.stop()
    published = await topics.bodies("notifications")
    assert {body["device"]["udid"] for body in published} == {"held", "free"}
    assert len(service.received) == 3


async def takes(server: RedisServer, prefix: str, one: ConnectorCall) -> bool:
    """Whether a claim for the call is granted."""
    redis = connect_redis(server.url)
    claims = Claims(redis=redis, prefix=prefix, retain=600, deadline=30, metrics=Metrics())
    at = parse(one.detected_at)
    owner = uuid.UUID(one.id).bytes
    try:
        request = ClaimRequest(one.campaign.id, one.device.udid, owner, at, one.delay)
        return await take(claims, [request], at) == [None]
    finally:
        await redis.aclose()


async def test_sigterm_finishes_what_is_in_flight_and_leaves_the_rest(
    stores: Rig, topics: TopicSet
) -> None:
    """One call of many hangs; the next process repeats no finished call and loses none."""
    answers = {"hangs": hanging, "": content(after=1.0)}
    async with serving(by_path(answers)) as service:
        first = await start(stores, topics, DRAIN_TIMEOUT="8", CONNECTOR_CALL_TIMEOUT="60")
        hung = call(service.url("/hangs"), "phone", company=2)
        others = [call(service.url(), "phone", delay=0) for _ in range(300)]
        await publish_calls(topics, hung, *others)
        await topics.until("notifications", 50)
        await first.stop()
        requested_before = {each.id for each in service.received if each.path != "/hangs"}
        published_before = {body["id"] for body in await topics.bodies("notifications")}
        assert published_before == requested_before, "what was in flight was finished"
        assert len(published_before) < 300
        assert await topics.lag("connector") == 301, "nothing is committed past what hangs"
        answers |= {"": content(), "hangs": replying(404)}
        second = stores.role("connector")
        await topics.until_done("connector")
        await second.stop()
    notified = Counter(body["id"] for body in await topics.bodies("notifications"))
    assert notified == Counter(each.id for each in others), "each once"
    (letter,) = await topics.read("dead-letters")
    assert json.loads(letter.value or b"")["id"] == hung.id
