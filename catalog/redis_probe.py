"""Asks Redis once whether its URL can work at all: what no waiting mends is said at the start."""

import asyncio
from collections.abc import Mapping
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, AuthorizationError, RedisError, ResponseError

from catalog.redis_connection import CLUSTER_SCHEME, RedisUrlError, connect_redis

_SECONDS = 2.0


async def refuse_wrong_redis(url: str) -> None:
    """Raise RedisUrlError for a wrong password, database, TLS or kind of server (single, cluster).

    A Redis that does not answer within 2 s is no obstacle here: it may come.
    """
    wants_cluster = url.startswith(CLUSTER_SCHEME)
    client = single_node(url)
    try:
        info: Mapping[str, Any] = await client.info("cluster")
    except (AuthenticationError, AuthorizationError) as error:
        raise RedisUrlError(f"Redis refuses user or password: {_told(error)}") from None
    except ResponseError as error:
        if str(error).startswith("DB index"):
            raise RedisUrlError(f"Redis has no such database: {_told(error)}") from None
        return  # INFO itself is forbidden: what follows will tell
    except (RedisError, OSError, TimeoutError) as error:
        if "SSL" in str(error) or "certificate" in str(error):
            raise RedisUrlError(f"TLS with Redis fails: {_told(error)}") from None
        if url.startswith("rediss://") and await _speaks_plain(client):
            raise RedisUrlError("Redis speaks plain text there: use redis://") from None
        return
    finally:
        await client.aclose()
    is_cluster = bool(info.get("cluster_enabled"))
    if wants_cluster and not is_cluster:
        raise RedisUrlError("redis+cluster:// leads to a server that is no cluster: use redis://")
    if is_cluster and not wants_cluster:
        raise RedisUrlError("it leads to a node of a cluster: use redis+cluster://")


def single_node(url: str) -> "Redis":
    """A client of the node that the URL names, also of a cluster's; it tries once, for 2 s."""
    client = connect_redis(url.replace(CLUSTER_SCHEME, "redis://", 1), timeout=_SECONDS)
    assert isinstance(client, Redis)  # noqa: S101  # by the scheme
    client.connection_pool.connection_kwargs["retry"] = Retry(NoBackoff(), 0)
    return client


async def _speaks_plain(client: "Redis") -> bool:
    """A server without TLS waits for the end of what it takes for a command; so ask it one."""
    place = client.connection_pool.connection_kwargs
    try:
        async with asyncio.timeout(_SECONDS):
            reader, writer = await asyncio.open_connection(place.get("host"), place.get("port"))
            try:
                writer.write(b"PING\r\n")
                return (await reader.read(8)).startswith((b"+PONG", b"-NOAUTH"))
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False


def _told(error: Exception) -> str:
    return str(error).partition("\n")[0]
