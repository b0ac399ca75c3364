"""The overview: sentences about roles. (Its figures are read in tests/browser.)"""

import time

import msgspec

from engine.redis.role_states import RoleLine, RoleStateStore
from tests.console.visitor import Visitor


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
    (key,) = [key async for key in redis.scan_iter("proximity:roles:*")]
    silent = RoleLine("trigger", time.time() - 125, 0.0, [])
    await redis.hset(key, "trigger:a", msgspec.msgpack.encode(silent))
    sentence = "No trigger has been heard from for 2 min"
    assert sentence in (await visitor.get(part)).texts
