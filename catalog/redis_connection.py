"""Connects to Redis, single, cluster or behind Sentinel, with deadlines, retries and health checks.

`check_redis_url` and `probe_redis` find the faults that do not pass by waiting. Messages never hold
the URL, which may carry a password.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from redis.asyncio import Redis, RedisCluster, Sentinel
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    RedisClusterException,
    RedisError,
)
from redis.exceptions import ConnectionError as RedisConnectionError

from catalog.errors import RedisUrlError

RedisClient = Redis | RedisCluster

REDIS_SECONDS = 5.0  # deadline of one call

_ACCEPTED = (
    "accepted: redis://, rediss://, redis+cluster://, rediss+cluster://, each "
    "[user:password@]host[:port]; redis+sentinel://, rediss+sentinel://, each "
    "[user:password@]host:port,host:port/service"
)
_CLUSTER_SCHEMES = ("redis+cluster://", "rediss+cluster://")
_SENTINEL_SCHEMES = ("redis+sentinel://", "rediss+sentinel://")
_SCHEMES = ("redis://", "rediss://", "unix://")
_HEALTH_CHECK_SECONDS = 15
_RETRIES = 3
_CHECK_SECONDS = 2.0
_SENTINEL_SECONDS = 1.0
_SENTINEL_PORT = 26379


def connect_redis(url: str, *, timeout: float = REDIS_SECONDS) -> RedisClient:
    """A client for `url` that answers with bytes. The first command opens the first connection.

    `timeout` (seconds) bounds connecting and each reply. After a lost connection or a time-out
    every command is retried, so callers may send only commands that are safe to repeat. The caller
    closes the client with `aclose`. Raises RedisUrlError.
    """
    options: dict[str, Any] = {
        "decode_responses": False,
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "health_check_interval": _HEALTH_CHECK_SECONDS,
        "retry": Retry(ExponentialWithJitterBackoff(base=0.02, cap=0.5), _RETRIES),
    }
    try:
        if _is_cluster(url):
            return _connect_cluster(_of_one_node(url), options)
        if url.startswith(_SENTINEL_SCHEMES):
            return _connect_sentinel(url, options)
        if url.startswith(_SCHEMES):
            return Redis.from_url(url, **options)
    except Exception:  # the parser's message may quote the URL, so it is not passed on
        raise RedisUrlError(f"cannot be used; {_ACCEPTED}") from None
    raise RedisUrlError(f"cannot be used; {_ACCEPTED}")


def check_redis_url(url: str) -> None:
    """Raise RedisUrlError if `url` cannot work. Nothing is opened."""
    client = connect_redis(url)
    parts = urlsplit(url)
    for name, value in parse_qsl(parts.query):
        if name.startswith("ssl_") and not url.startswith("rediss"):
            raise RedisUrlError(f"{name} has no effect in plain text: begin with rediss")
        if name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile") and not Path(value).is_file():
            raise RedisUrlError(f"{name} {value}: no such file")
    if isinstance(client, RedisCluster):
        return
    *_, database = parts.path.split("/")
    if not url.startswith((*_SENTINEL_SCHEMES, "unix://")) and not (database or "0").isdecimal():
        raise RedisUrlError("the database behind the last / is a number, such as 0")
    pool = client.connection_pool
    try:
        pool.connection_class(**pool.connection_kwargs)
    except TypeError as error:  # redis-py would fail so when it first connects
        raise RedisUrlError(f"a parameter is not known: {error}") from None


def connect_single_node(url: str) -> Redis:
    """A client of one node that makes one attempt of 2 s.

    It is the node that the URL names, in a cluster too; behind Sentinel it is the primary.
    """
    client = connect_redis(_of_one_node(url), timeout=_CHECK_SECONDS)
    assert isinstance(client, Redis)  # noqa: S101  # by the scheme
    client.connection_pool.connection_kwargs["retry"] = Retry(NoBackoff(), 0)
    return client


async def probe_redis(url: str) -> None:
    """Raise RedisUrlError for a wrong password, database, TLS or kind of server (single, cluster).

    A Redis that does not answer within 2 s raises nothing: it may still be starting.
    """
    client = connect_single_node(url)
    try:
        info: Mapping[str, Any] = await client.info("cluster")
    except (RedisError, OSError, TimeoutError) as error:
        text = str(error).partition("\n")[0]
        if isinstance(error, AuthenticationError | AuthorizationError):
            raise RedisUrlError(f"Redis refuses user or password: {text}") from None
        if any(word in text for word in ("DB index", "SSL", "certificate")):
            raise RedisUrlError(f"Redis refuses the connection: {text}") from None
        return  # INFO itself may be forbidden: later commands show whether the user may do enough
    finally:
        await client.aclose()
    is_cluster = bool(info.get("cluster_enabled"))
    if _is_cluster(url) and not is_cluster:
        raise RedisUrlError("redis+cluster:// leads to a server that is no cluster: use redis://")
    if is_cluster and not _is_cluster(url):
        raise RedisUrlError("it leads to a node of a cluster: use redis+cluster://")


def _is_cluster(url: str) -> bool:
    return url.startswith(_CLUSTER_SCHEMES)


def _of_one_node(url: str) -> str:
    return url.replace("+cluster", "", 1) if _is_cluster(url) else url


class _ErrorWhenClosed:
    """Raises redis-py's ConnectionError where redis-py 8.1 raises AttributeError.

    While a node of a cluster fails, its connection may be closed after a command was handed over
    and before it is written. The AttributeError would look like a defect of the caller.
    """

    async def send_packed_command(self, *args: Any, **options: Any) -> None:
        sender: Any = super()
        try:
            await sender.send_packed_command(*args, **options)
        except AttributeError as error:
            raise RedisConnectionError("closed before the command was sent") from error


class _WaitingRedisCluster(RedisCluster):
    """A cluster that cannot be reached, or whose slots have no node yet, is an error of the
    connection: it may pass. redis-py's own for it is none of its RedisErrors."""

    async def initialize(self, *args: Any, **options: Any) -> "_WaitingRedisCluster":
        try:
            await super().initialize(*args, **options)
        except RedisClusterException as error:
            raise RedisConnectionError(str(error)) from error
        return self


def _connect_cluster(url: str, options: Mapping[str, Any]) -> RedisCluster:
    client = _WaitingRedisCluster.from_url(url, **options)
    # redis-py has no argument for the class. Nodes that are found later use these arguments too.
    bases = (_ErrorWhenClosed, client.connection_kwargs["connection_class"])
    kind: Any = type("ClusterConnection", bases, {})
    client.connection_kwargs["connection_class"] = kind
    for node in client.nodes_manager.startup_nodes.values():
        node.connection_class = kind
    return client


class _SentinelRedis(Redis):
    """A client of the primary; closing it closes its connections to the Sentinels too.

    After each lost connection the Sentinels give the client the primary's address.
    """

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        await super().aclose(close_connection_pool)
        pool: Any = self.connection_pool
        await pool.sentinel_manager.aclose()


def _connect_sentinel(url: str, options: Mapping[str, Any]) -> Redis:
    """For `redis+sentinel://[user:password@]host:port,host:port/service[/database]`.

    Query parameters are those of redis-py; `sentinel_username` and `sentinel_password` are for the
    Sentinels themselves. rediss+sentinel:// speaks TLS with both.
    """
    parts = urlsplit(url)
    user, at, places = parts.netloc.rpartition("@")
    service, _, database = parts.path.strip("/").partition("/")
    if not service or not (database or "0").isdecimal():
        raise ValueError("the path is service or service/database")
    scheme = parts.scheme.removesuffix("+sentinel")
    given: dict[str, Any] = dict(
        parse_url(f"{scheme}://{user}{at}primary/{database}?{parts.query}")
    )
    del given["host"]
    given["ssl"] = given.pop("connection_class", None) is not None
    own = [name for name in given if name.startswith("sentinel_")]
    of_sentinels = {name.removeprefix("sentinel_"): given.pop(name) for name in own}
    of_sentinels |= {name: value for name, value in given.items() if name.startswith("ssl")}
    of_sentinels["retry"] = Retry(NoBackoff(), 0)
    for name in ("socket_timeout", "socket_connect_timeout"):
        of_sentinels.setdefault(name, _SENTINEL_SECONDS)
    make: Any = Sentinel  # redis-py has no types for it
    sentinel = make([_place(each) for each in places.split(",")], sentinel_kwargs=of_sentinels)
    primary = sentinel.master_for(service, redis_class=_SentinelRedis, **{**options, **given})
    assert isinstance(primary, Redis)  # noqa: S101  # the requested class
    return primary


def _place(text: str) -> tuple[str, int]:
    parts = urlsplit(f"//{text.strip()}")
    if not parts.hostname or parts.port == 0:
        raise ValueError("an address is host:port")
    return parts.hostname, parts.port or _SENTINEL_PORT
