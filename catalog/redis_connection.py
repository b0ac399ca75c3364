"""Connects to Redis, single, cluster or behind Sentinel, with deadlines, retries and health checks.

`probe_redis` finds at the start of a process what no waiting would mend.
"""

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.exceptions import AuthenticationError, AuthorizationError, RedisError, ResponseError

from catalog.errors import RedisUrlError
from catalog.redis_cluster import connect_cluster
from catalog.redis_sentinel import (
    SENTINEL_SCHEMES,
    SentinelRedis,
    connect_sentinel,
    probe_sentinel,
    read_sentinel_url,
)

RedisClient = Redis | RedisCluster

_CLUSTER_SCHEMES = {"redis+cluster://": "redis://", "rediss+cluster://": "rediss://"}
_SCHEMES = ("redis://", "rediss://", "unix://")
_ACCEPTED = (
    "accepted: redis://, rediss://, redis+cluster://, rediss+cluster://, each "
    "[user:password@]host[:port]; redis+sentinel://, rediss+sentinel://, each "
    "[user:password@]host:port,host:port/service"
)
_HEALTH_CHECK_SECONDS = 15
_RETRIES = 3
_CHECK_SECONDS = 2.0


def connect_redis(url: str, *, timeout: float = 5.0) -> RedisClient:
    """A client for `url` that answers with bytes; nothing is opened until the first command.

    `timeout` (seconds) bounds connecting and each reply. Idempotent or not, a command is retried
    after a lost connection or a time-out: callers send only what may be sent twice. The caller
    closes it with `aclose`. Raises RedisUrlError.
    """
    try:
        return _connect(url, timeout)
    except Exception:  # whatever the parser says may quote the URL, so it goes no further
        raise RedisUrlError(f"the Redis URL cannot be used; {_ACCEPTED}") from None


def _connect(url: str, timeout: float) -> RedisClient:
    options: dict[str, Any] = {
        "decode_responses": False,
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "health_check_interval": _HEALTH_CHECK_SECONDS,
        "retry": Retry(ExponentialWithJitterBackoff(base=0.02, cap=0.5), _RETRIES),
    }
    if _is_cluster(url):
        return connect_cluster(_of_one_node(url), options)
    if url.startswith(SENTINEL_SCHEMES):
        return connect_sentinel(url, options)
    if not url.startswith(_SCHEMES):
        raise RedisUrlError(_ACCEPTED)
    return Redis.from_url(url, **options)


async def probe_redis(url: str) -> None:
    """Raise RedisUrlError for a wrong password, database, TLS or kind of server (single, cluster).

    A Redis that does not answer within 2 s raises nothing: it may still be starting.
    """
    wants_cluster = _is_cluster(url)
    client = connect_single_node(url)
    try:
        if isinstance(client, SentinelRedis):
            await probe_sentinel(client, read_sentinel_url(url).service)
        info: Mapping[str, Any] = await client.info("cluster")
    except (AuthenticationError, AuthorizationError) as error:
        raise RedisUrlError(f"Redis refuses user or password: {_first_line(error)}") from None
    except ResponseError as error:
        if str(error).startswith("DB index"):
            raise RedisUrlError(f"Redis has no such database: {_first_line(error)}") from None
        return  # INFO itself is forbidden: later commands will tell
    except (RedisError, OSError, TimeoutError) as error:
        if "SSL" in str(error) or "certificate" in str(error):
            raise RedisUrlError(f"TLS with Redis fails: {_first_line(error)}") from None
        await _refuse_other_tls(url, client)
        return
    finally:
        await client.aclose()
    is_cluster = bool(info.get("cluster_enabled"))
    if wants_cluster and not is_cluster:
        raise RedisUrlError("redis+cluster:// leads to a server that is no cluster: use redis://")
    if is_cluster and not wants_cluster:
        raise RedisUrlError("it leads to a node of a cluster: use redis+cluster://")


def connect_single_node(url: str) -> Redis:
    """A client of the one node that the URL names, in a cluster too; behind Sentinel, of the
    primary. It tries once, for 2 s."""
    client = connect_redis(_of_one_node(url), timeout=_CHECK_SECONDS)
    assert isinstance(client, Redis)  # noqa: S101  # by the scheme
    client.connection_pool.connection_kwargs["retry"] = Retry(NoBackoff(), 0)
    return client


def _is_cluster(url: str) -> bool:
    return url.startswith(tuple(_CLUSTER_SCHEMES))


def _of_one_node(url: str) -> str:
    for scheme, single in _CLUSTER_SCHEMES.items():
        if url.startswith(scheme):
            return single + url.removeprefix(scheme)
    return url


async def _refuse_other_tls(url: str, client: Redis) -> None:
    """Raise RedisUrlError for TLS with a server that speaks plain text, and the reverse."""
    if url.startswith(("rediss://", "rediss+cluster://")) and await _speaks_plain(client):
        raise RedisUrlError("Redis speaks plain text there: use redis://") from None
    if url.startswith(("redis://", "redis+cluster://")) and await _speaks_tls(client):
        raise RedisUrlError("Redis speaks TLS there: begin with rediss") from None


async def _speaks_plain(client: Redis) -> bool:
    """Whether the server answers a PING without TLS."""
    place = client.connection_pool.connection_kwargs
    try:
        async with asyncio.timeout(_CHECK_SECONDS):
            reader, writer = await asyncio.open_connection(place.get("host"), place.get("port"))
            try:
                writer.write(b"PING\r\n")
                return (await reader.read(8)).startswith((b"+PONG", b"-NOAUTH"))
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False


async def _speaks_tls(client: Redis) -> bool:
    """Whether the server shakes hands, with whatever certificate."""
    place = client.connection_pool.connection_kwargs
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout(_CHECK_SECONDS):
            address = place.get("host", "localhost"), place.get("port", 6379)
            _, writer = await asyncio.open_connection(*address, ssl=context)
            writer.close()
    except ssl.SSLError as error:
        return "ALERT" in str(error)  # it answers in TLS, and wants a client certificate
    except (OSError, TimeoutError):
        return False
    return True


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
