"""Checks Redis: version, eviction policy and memory, persistence, clock."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from catalog.errors import RedisUrlError
from catalog.redis_connection import connect_single_node, probe_redis
from engine.cli.check.finding import Finding, bad, check_clock, ok, warning
from engine.cli.servers import reason_of
from engine.process.settings import Settings
from engine.process.settings_display import shown

_PART = "Redis"
_FORBIDDEN = warning(
    _PART,
    "setup",
    "this user may not use INFO: version, memory, eviction and persistence are not checked, "
    "and the processes cannot monitor them",
)
_OLDEST = (6, 2)
_FULL = 0.8
_MIB = 1024 * 1024


async def check_redis(settings: Settings) -> list[Finding]:
    """Check Redis, or the named node of a cluster. Each command takes at most 2 s."""
    url = settings.redis_url.get_secret_value()
    where = shown(settings.redis_url)
    try:
        await probe_redis(url)
    except RedisUrlError as error:
        return [bad(_PART, "reachable", f"{where}: {error}")]
    client = connect_single_node(url)
    try:
        info = await _info(client)
        begin = time.time()
        seconds, micros = await client.time()
        skew = check_clock(_PART, seconds + micros / 1e6, begin, time.time())
    except (RedisError, OSError, TimeoutError) as error:
        return [bad(_PART, "reachable", f"{where}: {reason_of(error)}")]
    finally:
        await client.aclose()
    found = [_FORBIDDEN] if info is None else _findings(info)
    return [ok(_PART, "reachable", where), *found, skew]


async def _info(client: Redis) -> Mapping[str, Any] | None:
    """The content of INFO; None if this user may not use it."""
    try:
        info: Mapping[str, Any] = await client.info()
    except ResponseError:
        return None
    return info


def _findings(info: Mapping[str, Any]) -> Iterator[Finding]:
    version = str(info.get("redis_version", "unknown"))
    parts = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    old = parts < _OLDEST
    yield (bad if old else ok)(_PART, "version", version + (": 6.2 or later is needed" * old))
    yield _policy(info)
    if info.get("aof_enabled"):
        yield ok(_PART, "persistence", "appendonly is on")
    else:
        loss = "after its end a device may get a campaign once more"
        yield warning(_PART, "persistence", f"appendonly is off: {loss}")


def _policy(info: Mapping[str, Any]) -> Finding:
    policy, limit = str(info.get("maxmemory_policy", "unknown")), int(info.get("maxmemory", 0))
    used = int(info.get("used_memory", 0))
    memory = f"{used // _MIB} MiB used" + (f" of {limit // _MIB}" if limit else ", no limit set")
    if policy != "noeviction":
        advice = f"maxmemory-policy is {policy}: set noeviction, or claims and index are evicted"
        return (bad if limit else warning)(_PART, "memory", f"{memory}; {advice}")
    if limit and used > _FULL * limit:
        return warning(_PART, "memory", f"{memory}: nearly full")
    return ok(_PART, "memory", f"{memory}, noeviction")
