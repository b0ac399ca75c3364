"""The sentences of the overview about roles and the company's service."""

import re
import time

import msgspec
from sqlalchemy import select

from catalog.models import Account
from connectors.breaker import BreakerPolicy, BreakerReport
from engine.connector.redis_breakers import RedisBreakers
from engine.redis.role_states import RoleLine, RoleStateStore
from tests.integration.api.bodies import Bodies
from tests.integration.console.visitor import Visitor


async def test_how_the_service_keeps_up(visitor: Visitor):
    part = "/parts/roles"
    assert "No trigger has been heard from within a day" in (await visitor.get(part)).texts
    redis = visitor.api.stores.redis
    store = RoleStateStore(redis=redis, prefix="proximity:", deadline=10.0)
    await store.write("a", "trigger", behind=0.4, waits_for=[])
    await store.write("a", "recorder", behind=12.3, waits_for=[])
    await store.write("a", "connector", behind=None, waits_for=["kafka", "redis_writes"])
    page = await visitor.get(part)
    assert page.texts == [
        "The trigger is up to date",
        "The connector waits for Kafka, room in Redis",
        "The recorder is 12 s behind",
    ]
    german = await visitor.get(part, accept_language="de")
    assert "Der Recorder ist 12 s zurück" in german.texts
    silent = RoleLine("trigger", time.time() - 125, 0.0, [])
    await redis.hset("proximity:roles", "trigger:a", msgspec.msgpack.encode(silent))
    sentence = "No trigger has been heard from for 2 min"
    assert sentence in (await visitor.get(part)).texts


async def test_a_failed_service_is_reported(visitor: Visitor, bodies: Bodies):
    await visitor.api.call("PUT", "/connector", visitor.headers, bodies.connector())
    assert len((await visitor.get("/parts/roles")).texts) == 3
    async with visitor.api.database.read() as session:
        query = select(Account.company_id).where(Account.email == visitor.session.email)
        company = await session.scalar(query)
    policy = BreakerPolicy(window=4, failures=2, pause=9000.0, lease=5.0)
    breakers = RedisBreakers(
        redis=visitor.api.stores.redis, prefix="proximity:", policy=policy, deadline=10.0
    )
    failed = BreakerReport(company_id=company or 0, outcomes=(True, True, True))
    await breakers.exchange([failed], prober="a", now=time.time())
    sentence = (await visitor.get("/parts/roles")).texts[-1]
    assert re.fullmatch(r"Your service has failed; calls resume in \d{4} s", sentence)
