"""The connector while a server is down, and when it is stopped."""

import asyncio
import json
import uuid
from collections import Counter
from datetime import UTC, datetime

from catalog.database import open_database
from catalog.models import Company, Device
from catalog.redis_connection import connect_redis
from engine.kafka.messages import ConnectorCall, parse
from engine.process.metrics import Metrics
from engine.redis.claims import Claims
from tests.redis.claim_requests import ClaimRequest, take
from tests.servers.http_service import content, hanging, replying, serving
from tests.servers.postgres import PostgresServer, create_database
from tests.servers.proximity import Command, Rig
from tests.servers.redis import RedisServer
from tests.servers.schema import make_schema
from tests.system.connectors.customers import SETTINGS, by_path, call, publish_calls
from tests.system.topics import TopicSet


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
