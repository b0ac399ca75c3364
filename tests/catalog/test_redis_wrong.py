"""A REDIS_URL that cannot work, although Redis answers, stops a command with one line."""

import pytest
from redis import Redis

from catalog.errors import RedisUrlError
from catalog.redis_connection import probe_redis
from engine.cli.application import run
from tests.servers.process import started
from tests.servers.redis import RedisServer
from tests.servers.redis_kinds import TlsRedisServer


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


async def test_tls_where_there_is_none(redis_url: str) -> None:
    assert "plain text there" in await message(redis_url.replace("redis", "rediss", 1))


async def test_plain_text_where_there_is_tls() -> None:
    with started(TlsRedisServer) as server:
        place = f"127.0.0.1:{server.port}"
        assert "speaks TLS there: begin with rediss" in await message(f"redis://{place}")
        assert "speaks TLS there: begin with rediss" in await message(f"redis+cluster://{place}")


async def test_a_database_that_is_not_there(redis_url: str) -> None:
    bare = redis_url.rpartition("/")[0] if redis_url.count("/") > 2 else redis_url
    assert "no such database" in await message(f"{bare}/4711")


async def test_a_wrong_password(own_redis: RedisServer) -> None:
    with Redis.from_url(own_redis.url) as client:
        client.config_set("requirepass", "s3cret")
    assert "refuses user or password" in await message(own_redis.url)
    wrong = own_redis.url.replace("redis://", "redis://:hunter2@")
    assert "hunter2" not in await message(wrong)
    await probe_redis(own_redis.url.replace("redis://", "redis://:s3cret@"))


@pytest.mark.parametrize("command", [["api"], ["catalog", "load", "docs/examples/catalog.json"]])
def test_commands_name_the_setting(
    redis_url: str,
    sqlite_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
) -> None:
    monkeypatch.setenv("PROXIMITY_REDIS_URL", redis_url.replace("redis://", "redis+cluster://"))
    monkeypatch.setenv("PROXIMITY_DATABASE_URL", sqlite_url)
    monkeypatch.setenv("PROXIMITY_LOG_LEVEL", "error")
    assert run(command) == 2
    error = capsys.readouterr().err
    assert error.startswith("proximity: PROXIMITY_REDIS_URL: ")
    assert error.count("\n") == 1
