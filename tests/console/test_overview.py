"""The overview: figures by hour and by reason, and sentences about roles and the service."""

import time

import msgspec

from engine.redis.role_states import RoleLine, RoleStateStore
from tests.api.harness import Bodies
from tests.console.visitor import Visitor, decided


async def test_reasons(visitor: Visitor, bodies: Bodies):
    assert (await visitor.get("/parts/reasons")).texts[0] == "No figures yet."
    venue = await visitor.made("/region", bodies.venue())
    where = f"/lieu/{venue}/campaign"
    boats = await visitor.made(where, bodies.campaign(name="Boats"))
    figures = {"r:throttled": 1200, "r:too_far": 3, "r:granted": 5}
    figures |= {f"c:{boats}:throttled": 1200, f"c:{boats}:granted": 5}
    await decided(visitor, figures)
    await decided(visitor, figures, back=29)
    await decided(visitor, figures, back=30)
    page = await visitor.get("/parts/reasons")
    assert "held back: it was sent lately 1 200 2 400 Boats 2 400" in page.text
    assert "farther than the beacon reacts to 3 6" in page.text
    assert "sent" not in page.texts  # what fired stands elsewhere
    assert f"/console/venues/{venue}/campaigns/{boats}" in page.links()


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
