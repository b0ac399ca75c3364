"""SQL hangs, instead of refusing: the trigger starts and works with Redis alone."""

import json
import random
import time

import pytest

from catalog.database import open_database
from catalog.index.drain import rebuild
from catalog.index.store import IndexStore
from catalog.redis_connection import connect_redis
from tests.servers.freezing import frozen
from tests.servers.postgres import PostgresServer, create_database
from tests.servers.waiting import eventually
from tests.system.rig import Command, Rig
from tests.system.topics import TopicSet
from tests.system.traffic import Traffic
from tests.system.world import World, small_world


@pytest.mark.timeout(200)
async def test_a_trigger_starts_while_sql_hangs(
    rig: Rig, topics: TopicSet, topic_prefix: str, redis_url: str, own_postgres: PostgresServer
) -> None:
    url = create_database(own_postgres.admin_url)
    world = small_world(beacons=4)
    await _save(world, url, redis_url, topic_prefix)
    await topics.create()
    traffic = Traffic(random.Random(3), [plan.triple for plan in world.beacons], devices=20)
    settings = {"REDIS_URL": redis_url, "DATABASE_URL": url}
    with frozen(own_postgres):
        began = time.monotonic()
        trigger, recorder = rig.trigger(**settings), rig.recorder(**settings)
        await trigger.until_ready()
        print(f"\nready from Redis alone after {time.monotonic() - began:.1f} s")
        await topics.publish([traffic.detection(int(time.time() * 1000)) for _ in range(200)])
        await topics.until_done()
        assert await topics.read("notifications")
        await eventually(lambda: _all_but_sql(recorder), deadline=45, what="all but SQL answer")
        assert (await trigger.metrics()).total("sql_errors") > 0
    await recorder.until_ready()
    await eventually(lambda: len(_of_sql(trigger)) > 1, deadline=60, what="SQL is back")
    assert _of_sql(trigger) == ["server failed, trying again", "server answers again"]
    await trigger.stop()
    await recorder.stop()


def _of_sql(command: Command) -> list[str]:
    """The log lines about SQL as a server."""
    lines = [json.loads(line) for line in command.output.splitlines() if line.startswith("{")]
    return [line["event"] for line in lines if line.get("server") == "sql"]


async def _all_but_sql(recorder: Command) -> bool:
    checks = await recorder.checks()
    return checks == {
        "running": True,
        "partitions_assigned": True,
        "kafka": True,
        "redis": True,
        "sql": False,
    }


async def _save(world: World, url: str, redis_url: str, prefix: str) -> None:
    await world.save(url)
    database, redis = open_database(url), connect_redis(redis_url)
    await rebuild(database, IndexStore(redis, prefix=prefix))
    await redis.aclose()
    await database.close()
