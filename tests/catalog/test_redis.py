"""Redis connections: what cannot work is refused in one line that does not show the password."""

import pytest
from redis import Redis
from redis.exceptions import RedisError

from catalog.errors import RedisUrlError
from catalog.redis_connection import connect_redis, probe_redis
from engine.process.failures import redis_may_recover
from tests.servers.redis import RedisServer


async def test_a_cluster_that_is_down_may_answer_later():
    """redis-py raises an error for it that is no RedisError."""
    client = connect_redis("redis+cluster://127.0.0.1:1")
    with pytest.raises(RedisError) as caught:
        await client.execute_command("PING")
    assert redis_may_recover(caught.value)
    await client.aclose()


async def message(url: str) -> str:
    with pytest.raises(RedisUrlError) as caught:
        await probe_redis(url)
    assert "\n" not in str(caught.value)
    return str(caught.value)


async def test_a_url_that_works_or_may_come(redis_url: str, redis_cluster_url: str) -> None:
    for url in (redis_url, redis_cluster_url, "redis://127.0.0.1:1/0"):
        await probe_redis(url)


async def test_the_wrong_kind_of_server(redis_url: str, redis_cluster_url: str) -> None:
    single = redis_url.replace("redis://", "redis+cluster://")
    assert "no cluster: use redis://" in await message(single)
    cluster = redis_cluster_url.replace("redis+cluster://", "redis://")
    assert "a node of a cluster: use redis+cluster://" in await message(cluster)


async def test_a_wrong_password(own_redis: RedisServer) -> None:
    with Redis.from_url(own_redis.url) as client:
        client.config_set("requirepass", "s3cret")
    assert "refuses user or password" in await message(own_redis.url)
    wrong = own_redis.url.replace("redis://", "redis://:hunter2@")
    assert "hunter2" not in await message(wrong)
    await probe_redis(own_redis.url.replace("redis://", "redis://:s3cret@"))
