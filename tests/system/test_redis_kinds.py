"""Redis behind Sentinel, as three nodes, and with TLS: the primary is killed under load, another
one is promoted, and no notification is missing. With PROXIMITY_TEST_FULL=1."""

import asyncio
import os
import time
from collections.abc import Iterator

import pytest

from catalog.errors import RedisUrlError
from catalog.redis_connection import probe_redis
from tests.servers.process import started
from tests.servers.redis import RedisServer
from tests.servers.redis_kinds import (
    PASSWORD,
    SERVICE,
    USER,
    TlsRedisServer,
    cluster_of_three,
    sentinel_and_two,
)
from tests.servers.waiting import eventually
from tests.system.comparison import messages_by_id
from tests.system.load import steady_load
from tests.system.oracle import Oracle
from tests.system.rig import Command, Rig
from tests.system.test_redis_flush import always_expected, assert_nothing_unknown
from tests.system.topics import TopicSet
from tests.system.world import small_world

pytestmark = [
    pytest.mark.skipif("PROXIMITY_TEST_FULL" not in os.environ, reason="servers of their own"),
    pytest.mark.timeout(180),
]


@pytest.fixture(params=["sentinel", "cluster"])
def with_replica(request: pytest.FixtureRequest) -> Iterator[tuple[str, RedisServer]]:
    """A URL, and the primary to kill, whose replica is promoted."""
    if request.param == "sentinel":
        with sentinel_and_two() as (sentinel, primary, _):
            yield f"redis+sentinel://127.0.0.1:{sentinel.port}/{SERVICE}", primary
    else:
        with cluster_of_three() as nodes:
            places = nodes[1]
            yield f"redis+cluster://127.0.0.1:{places.port}", nodes[0]


async def test_the_primary_ends_under_load(
    rig: Rig, topics: TopicSet, sqlite_url: str, with_replica: tuple[str, RedisServer]
) -> None:
    url, primary = with_replica
    world = small_world()
    await world.save(sqlite_url)
    await topics.create()
    begin = time.time()
    trigger = rig.trigger(REDIS_URL=url, DATABASE_URL=sqlite_url)
    await trigger.until_ready()
    async with steady_load(world, topics, seed=8, rate=200) as traffic:
        await _moved(trigger)
        killed = time.monotonic()
        await asyncio.to_thread(primary.kill)
        await eventually(lambda: _is_unready(trigger), deadline=20, what="it is noticed")
        await eventually(trigger.is_ready, deadline=60, what="ready again")
        print(f"ready again {time.monotonic() - killed:.1f} s after the primary was killed")
        await _moved(trigger)
    await topics.until_done()
    await assert_nothing_unknown(trigger)
    await trigger.stop()
    expected = Oracle(world, traffic.cases, begin).walk(await topics.read("detections"))
    found = messages_by_id(await topics.read("notifications"))
    assert not always_expected(expected, world) - found.keys()


async def test_tls_a_client_certificate_and_a_user_of_its_own(
    rig: Rig, topics: TopicSet, topic_prefix: str, sqlite_url: str
) -> None:
    with started(TlsRedisServer) as server:
        with server.connect() as client:
            rights = [f"~{topic_prefix}*", "+@all", "-@admin", "-@dangerous"]
            client.execute_command("ACL", "SETUSER", USER, "on", f">{PASSWORD}", *rights)
            client.execute_command("ACL", "SETUSER", "default", "off")
        world = small_world()
        await world.save(sqlite_url)
        await topics.create()
        trigger = rig.trigger(REDIS_URL=server.url, DATABASE_URL=sqlite_url)
        await trigger.until_ready()
        async with steady_load(world, topics, seed=9, rate=200):
            await _moved(trigger)
        await topics.until_done()
        await assert_nothing_unknown(trigger)
        await trigger.stop()
        without = server.url.partition("?")[0]
        with pytest.raises(RedisUrlError, match="TLS with Redis fails") as caught:
            await probe_redis(without)
        assert PASSWORD not in str(caught.value)


async def test_sentinels_that_cannot_work_are_named() -> None:
    with sentinel_and_two() as (sentinel, primary, _):
        place = f"127.0.0.1:{sentinel.port}"
        await probe_redis(f"redis+sentinel://{place}/{SERVICE}")
        with pytest.raises(RedisUrlError, match=f"knows no service 'other'; known: {SERVICE}"):
            await probe_redis(f"redis+sentinel://{place}/other")
        with pytest.raises(RedisUrlError, match="no Sentinel there: use redis://"):
            await probe_redis(f"redis+sentinel://127.0.0.1:{primary.port}/{SERVICE}")


async def _moved(trigger: Command) -> None:
    before = (await trigger.metrics()).total("detections")

    async def has_moved() -> bool:
        return (await trigger.metrics()).total("detections") > before + 300

    await eventually(has_moved, deadline=60, what="detections are decided")


async def _is_unready(trigger: Command) -> bool:
    return not await trigger.is_ready()
