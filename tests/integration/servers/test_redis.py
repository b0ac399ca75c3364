"""Each Redis that a test can use: embedded, single, cluster."""

import pytest
from redis.asyncio import Redis, RedisCluster
from redis.exceptions import ResponseError

from tests.servers.redis import RedisServer


def _client(url: str) -> Redis | RedisCluster:
    if url.startswith("redis+cluster://"):
        host, _, port = url.removeprefix("redis+cluster://").partition(":")
        return RedisCluster(host, int(port))
    return Redis.from_url(url)


@pytest.mark.parametrize("turn", [1, 2])
async def test_each_test_gets_an_empty_redis(any_redis_url: str, turn: int) -> None:
    async with _client(any_redis_url) as client:
        assert await client.set("key", turn, nx=True)
        assert await client.get("key") == str(turn).encode()


async def test_the_cluster_refuses_keys_of_different_slots(redis_cluster_url: str) -> None:
    port = int(redis_cluster_url.rpartition(":")[2])
    async with Redis(port=port) as client:
        with pytest.raises(ResponseError, match="same slot"):
            await client.execute_command("MGET", "a", "b")


async def test_redis_keeps_its_data_over_a_stop_and_a_kill(own_redis: RedisServer) -> None:
    # Made plainly, this client reconnects by itself; one made by from_url does not.
    async with Redis(port=own_redis.port) as client:
        await client.set("stopped", 1)
        own_redis.stop()
        assert not own_redis.running
        own_redis.start()
        await client.set("killed", 1)
        own_redis.kill()
        own_redis.start()
        assert await client.exists("stopped", "killed") == 2
