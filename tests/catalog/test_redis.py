"""Redis connections: what cannot work is refused in one line that does not show the password."""

import pytest
from redis import Redis
from redis.exceptions import RedisError

from catalog.errors import RedisUrlError
from catalog.redis_connection import check_redis_url, connect_redis, probe_redis
from engine.process.failures import redis_may_recover
from tests.servers.redis import RedisServer

PASSWORD = "hunter2"


@pytest.mark.parametrize(
    "url",
    [
        f"http://:{PASSWORD}@localhost",
        f"redis://:{PASSWORD}@localhost:port",
        f"redis://:{PASSWORD}@localhost?socket_timeout={PASSWORD}",
        f"redis+cluster://:{PASSWORD}@localhost:port",
        "",
    ],
)
def test_a_url_that_cannot_work(url: str):
    with pytest.raises(RedisUrlError, match="accepted: redis://") as caught:
        connect_redis(url)
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize(
    "place",
    [
        "a:26379",
        "a:port/service",
        ",/service",
        "a/service?sentinel_socket_timeout=never&db=x",
    ],
)
def test_a_url_of_sentinels_that_cannot_work(place: str):
    url = f"redis+sentinel://:{PASSWORD}@{place}"
    with pytest.raises(RedisUrlError, match="accepted: redis://") as caught:
        check_redis_url(url)
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize("query", ["ssl_ca_certs=/ca", "no_such_parameter=1"])
def test_a_parameter_that_cannot_work(query: str):
    for scheme in ("redis", "redis+cluster", "redis+sentinel"):
        with pytest.raises(RedisUrlError):
            check_redis_url(f"{scheme}://:{PASSWORD}@localhost/service?{query}")


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
