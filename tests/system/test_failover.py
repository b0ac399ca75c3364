"""The primary of Redis is killed under load: another one is promoted, and no notification is
missing. And Redis by TLS. With PROXIMITY_TEST_FULL=1."""

import asyncio
import os
from collections.abc import Iterator

import pytest

from tests.servers.process import started
from tests.servers.proximity import Rig
from tests.servers.redis import RedisServer
from tests.servers.redis_kinds import TlsRedisServer, cluster_of_three, sentinel_and_two
from tests.servers.waiting import eventually
from tests.system.scene import Scene
from tests.system.topics import TopicSet
from tests.system.world import small_world

pytestmark = pytest.mark.skipif(
    "PROXIMITY_TEST_FULL" not in os.environ, reason="servers of their own"
)


@pytest.fixture(params=[sentinel_and_two, cluster_of_three])
def with_replica(request: pytest.FixtureRequest) -> Iterator[tuple[str, RedisServer]]:
    """A URL, and the primary to kill, whose replica is promoted."""
    with request.param() as found:
        yield found


async def test_the_primary_of_redis_ends(
    rig: Rig, topics: TopicSet, sqlite_url: str, with_replica: tuple[str, RedisServer]
) -> None:
    url, primary = with_replica
    rig.settings |= {"REDIS_URL": url, "DATABASE_URL": sqlite_url}
    scene = await Scene(rig, topics, small_world()).begin()
    trigger = await rig.ready("trigger")

    async def is_unready() -> bool:
        return not await trigger.is_ready()

    async with scene.load(rate=200):
        await trigger.until_decided(300)
        await asyncio.to_thread(primary.kill)
        await eventually(is_unready, what="it is noticed")
        await trigger.until_ready()
        await trigger.until_decided(300)
    await scene.assert_none_missing(trigger)
    await trigger.stop()


async def test_tls_a_client_certificate_and_a_user_of_its_own(
    rig: Rig, topics: TopicSet, topic_prefix: str, sqlite_url: str
) -> None:
    with started(TlsRedisServer) as server:
        with server.connect() as client:
            rights = [f"~{topic_prefix}*", "+@all", "-@admin", "-@dangerous"]
            client.execute_command("ACL", "SETUSER", "engine", "on", ">secret", *rights)
            client.execute_command("ACL", "SETUSER", "default", "off")
        url = server.url_of("engine:secret@")
        rig.settings |= {"REDIS_URL": url, "DATABASE_URL": sqlite_url}
        scene = await Scene(rig, topics, small_world()).begin()
        trigger = await rig.ready("trigger")
        async with scene.load(rate=200):
            await trigger.until_decided(300)
        await scene.assert_none_missing(trigger)
        await trigger.stop()
