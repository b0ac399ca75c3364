"""One way to connect to Redis, single or cluster, with deadlines, retries and health checks."""

from typing import Any

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff

RedisClient = Redis | RedisCluster

CLUSTER_SCHEME = "redis+cluster://"
_SCHEMES = ("redis://", "rediss://", "unix://")
_ACCEPTED = "accepted: redis://, rediss://, redis+cluster://, each [user:password@]host[:port]"
_HEALTH_CHECK_SECONDS = 15
_RETRIES = 3


class RedisUrlError(ValueError):
    """A Redis URL cannot be used. The message never holds the URL: it may carry a password."""


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
    if url.startswith(CLUSTER_SCHEME):
        single = "redis://" + url.removeprefix(CLUSTER_SCHEME)
        return RedisCluster.from_url(single, **options)
    if not url.startswith(_SCHEMES):
        raise RedisUrlError(_ACCEPTED)
    return Redis.from_url(url, **options)
