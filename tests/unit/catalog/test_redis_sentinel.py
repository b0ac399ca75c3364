"""URLs of Redis behind Sentinel, and of a cluster with TLS."""

import pytest
from redis.asyncio import RedisCluster
from redis.asyncio.connection import SSLConnection

from catalog.errors import RedisUrlError
from catalog.redis_connection import connect_redis
from catalog.redis_sentinel import SentinelRedis, read_sentinel_url
from engine.process.errors import SettingsError
from engine.process.settings_sources import load_settings

PASSWORD = "hunter2"


def test_the_parts_of_a_url() -> None:
    url = (
        f"redis+sentinel://me:{PASSWORD}@a:1,b,[::1]:3/service/2"
        "?sentinel_username=watcher&sentinel_password=word"
    )
    address = read_sentinel_url(url)
    assert address.sentinels == [("a", 1), ("b", 26379), ("::1", 3)]
    assert address.service == "service"
    assert address.options == {"username": "me", "password": PASSWORD, "db": 2, "ssl": False}
    assert address.of_sentinels == {"username": "watcher", "password": "word", "ssl": False}


async def test_tls_is_spoken_with_both() -> None:
    client = connect_redis(f"rediss+sentinel://:{PASSWORD}@a/service?ssl_ca_certs=/ca", timeout=2.0)
    assert isinstance(client, SentinelRedis)
    primary = client.connection_pool
    (sentinel,) = client.watchers.sentinels
    of_sentinels = sentinel.connection_pool
    assert primary.connection_kwargs["ssl_ca_certs"] == "/ca"
    assert issubclass(primary.connection_class, SSLConnection)
    assert of_sentinels.connection_kwargs["ssl_ca_certs"] == "/ca"
    assert issubclass(of_sentinels.connection_class, SSLConnection)
    assert of_sentinels.connection_kwargs["password"] is None
    await client.aclose()


async def test_a_cluster_with_tls() -> None:
    client = connect_redis(f"rediss+cluster://me:{PASSWORD}@localhost:7000")
    assert isinstance(client, RedisCluster)
    assert issubclass(client.connection_kwargs["connection_class"], SSLConnection)
    await client.aclose()


@pytest.mark.parametrize(
    "place",
    [
        "a:26379",
        "a:26379/",
        "a:port/service",
        "a:70000/service",
        ",/service",
        "[::1/service",
        "a/service/one",
        "a/service?sentinel_socket_timeout=never&db=x",
    ],
)
def test_a_bad_url_is_refused_without_its_password(place: str) -> None:
    url = f"redis+sentinel://:{PASSWORD}@{place}"
    with pytest.raises(RedisUrlError, match="accepted: redis://") as caught:
        connect_redis(url)
    assert PASSWORD not in str(caught.value)
    with pytest.raises(
        SettingsError, match=r"^PROXIMITY_REDIS_URL: .*host:port/service$"
    ) as expected:
        load_settings(redis_url=url)
    assert PASSWORD not in str(expected.value)


def test_the_setting_accepts_sentinel_urls() -> None:
    for url in ("redis+sentinel://:p@a:1,b:2/s", "rediss+sentinel://a/s", "rediss+cluster://a:1"):
        assert load_settings(redis_url=url).redis_url.get_secret_value() == url
