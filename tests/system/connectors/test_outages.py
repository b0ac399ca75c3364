"""The connector while a server is down, and when it is stopped."""

import asyncio
import json
import uuid
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from catalog.database import open_database
from catalog.models import Company, Device
from catalog.redis_connection import connect_redis
from engine.kafka.messages import ConnectorCall, parse
from engine.process.metrics import Metrics
from engine.redis.claims import Claims
from tests.redis.claim_requests import ClaimRequest, take
from tests.servers.http_service import content, hanging, replying, serving
from tests.servers.postgres import PostgresServer, create_database
from tests.servers.redis import RedisServer
from tests.servers.schema import make_schema
from tests.servers.waiting import eventually
from tests.system.connectors.calls import bodies, call, publish
from tests.system.connectors.customers import SETTINGS, by_path
from tests.system.rig import Command, Rig
from tests.system.topics import TopicSet


async def start(rig: Rig, topics: TopicSet, **settings: str) -> Command:
    rig.environment |= SETTINGS | settings
    await make_schema(rig.environment["DATABASE_URL"])
    await topics.create()
    connector = rig.start("run", "--role", "connector")
    await connector.until_ready()
    return connector


async def until_published(topics: TopicSet, count: int) -> list[dict[str, Any]]:
    async def enough() -> bool:
        return await topics.count("notifications") >= count

    await eventually(enough, what=f"{count} notifications")
    return bodies(await topics.read("notifications"))


async def test_sql_that_stops_stops_no_call(
    rig: Rig,
    call_topics: TopicSet,
    kafka_bootstrap: str,
    redis_url: str,
    own_postgres: PostgresServer,
) -> None:
    url = create_database(own_postgres.admin_url)
    topic = call_topics.name("connector-calls")
    async with serving(content()) as service:
        connector = await start(rig, call_topics, REDIS_URL=redis_url, DATABASE_URL=url)
        await add_devices(url)
        udids = ("known", "test phone", "stranger")
        await publish(kafka_bootstrap, topic, [call(service.url(), udid) for udid in udids])
        published = await until_published(call_topics, 3)
        await asyncio.to_thread(own_postgres.kill)
        more = [call(service.url(), udid, delay=0) for udid in ("later", "known")]
        await publish(kafka_bootstrap, topic, more)
        await until_published(call_topics, 5)
        await connector.stop()
    sent = {each.json["device"]["udid"]: each.json["device"] for each in service.received}
    tested = {"known": False, "test phone": True, "stranger": False, "later": None}
    assert {udid: device["test"] for udid, device in sent.items()} == tested
    assert sent["known"]["id_connector"] == 4711
    devices = {body["device"]["udid"]: body["device"] for body in published}
    assert devices["known"]["id_connector"] == 4711
    assert "id" not in devices["stranger"]


async def add_devices(url: str) -> None:
    database = open_database(url)
    now = datetime.now(UTC)
    company = Company(name="only", create_on=now)
    devices = [
        Device(company=company, udid=udid, create_on=now, update_on=now, **more)
        for udid, more in (("known", {"id_connector": 4711}), ("test phone", {"test": True}))
    ]
    async with database.write.begin() as session:
        session.add_all([company, *devices])
    await database.close()


async def test_without_redis_calls_still_leave_and_claims_are_settled_later(
    rig: Rig,
    call_topics: TopicSet,
    kafka_bootstrap: str,
    own_redis: RedisServer,
    sqlite_url: str,
    topic_prefix: str,
) -> None:
    topic = call_topics.name("connector-calls")
    async with serving(by_path({"fails": replying(404), "": content()})) as service:
        connector = await start(rig, call_topics, REDIS_URL=own_redis.url, DATABASE_URL=sqlite_url)
        failing = call(service.url("/fails"), "fails")
        assert await takes(own_redis, topic_prefix, failing)
        await asyncio.to_thread(own_redis.kill)
        goods = [call(service.url(), f"phone {number}") for number in range(20)]
        await publish(kafka_bootstrap, topic, [failing, *goods])
        await until_published(call_topics, 20)
        assert await call_topics.lag() > 0
        await asyncio.to_thread(own_redis.start)
        await call_topics.until_done()
        assert await call_topics.count("dead-letters") == 1
        another = call(service.url(), "fails")
        assert await takes(own_redis, topic_prefix, another), "the claim was given back"
        await connector.stop()


async def test_a_repeated_call_publishes_only_if_its_claim_is_still_its_own(
    rig: Rig,
    call_topics: TopicSet,
    kafka_bootstrap: str,
    own_redis: RedisServer,
    sqlite_url: str,
    topic_prefix: str,
) -> None:
    async with serving(content()) as service:
        lost, held, free = (call(service.url(), udid) for udid in ("lost", "held", "free"))
        # After a crash: the first one gave its claim back, and another detection took it.
        assert await takes(own_redis, topic_prefix, call(service.url(), "lost"))
        assert await takes(own_redis, topic_prefix, held)
        connector = await start(rig, call_topics, REDIS_URL=own_redis.url, DATABASE_URL=sqlite_url)
        topic = call_topics.name("connector-calls")
        await publish(kafka_bootstrap, topic, [lost, held, free])
        await call_topics.until_done()
        published = await until_published(call_topics, 2)
        await connector.stop()
    assert {body["device"]["udid"] for body in published} == {"held", "free"}
    assert len(service.received) == 3


async def takes(server: RedisServer, prefix: str, one: ConnectorCall) -> bool:
    """Whether a claim for the call is granted."""
    redis = connect_redis(server.url)
    claims = Claims(redis=redis, prefix=prefix, retain=600, deadline=5, metrics=Metrics())
    at = parse(one.detected_at)
    owner = uuid.UUID(one.id).bytes
    try:
        request = ClaimRequest(one.campaign.id, one.device.udid, owner, at, one.delay)
        return await take(claims, [request], at) == [None]
    finally:
        await redis.aclose()


async def test_sigterm_finishes_what_is_in_flight_and_leaves_the_rest(
    stores: Rig, call_topics: TopicSet, kafka_bootstrap: str
) -> None:
    """One call of many hangs; the next process repeats no finished call and loses none."""
    topic = call_topics.name("connector-calls")
    async with serving(by_path({"hangs": hanging, "": content(after=0.2)})) as service:
        first = await start(stores, call_topics, DRAIN_TIMEOUT="5", CONNECTOR_CALL_TIMEOUT="30")
        calls = [call(service.url("/hangs"), "phone", company=2)]
        calls += [call(service.url(), "phone", delay=0) for number in range(300)]
        await publish(kafka_bootstrap, topic, calls)
        await until_published(call_topics, 100)
        await first.stop()
        requested_before = {each.id for each in service.received if each.path != "/hangs"}
        published_before = {body["id"] for body in bodies(await call_topics.read("notifications"))}
        assert published_before == requested_before, "what was in flight was finished"
        assert len(published_before) < 300
        assert await call_topics.lag() == 301, "nothing is committed past the call that hangs"
        second = stores.start("run", "--role", "connector", CONNECTOR_CALL_TIMEOUT="0.5")
        await call_topics.until_done()
        await second.stop()
    notified = Counter(body["id"] for body in bodies(await call_topics.read("notifications")))
    assert notified == Counter(one.id for one in calls[1:]), "each once"
    (letter,) = await call_topics.read("dead-letters")
    assert json.loads(letter.value or b"")["id"] == calls[0].id
