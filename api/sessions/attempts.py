"""How often somebody may try to sign in: per account and per address, counted in Redis."""

import asyncio
import hashlib
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.resources import files
from ipaddress import IPv6Address, ip_address
from typing import cast

import structlog
from redis.exceptions import RedisError

from api.errors import ApiError
from catalog.redis_connection import RedisClient

_log = structlog.get_logger(__name__)
_SCRIPTS = files("api.sessions").joinpath("scripts")
_IPV6_NETWORK = 64
_MOST_COUNTERS = 10_000


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """Attempts in `window` seconds; those that succeed do not count."""

    account: int
    address: int
    window: float


class Attempts:
    """Counts attempts. While Redis does not answer, each process counts its own.

    `deadline` (seconds) bounds a call to Redis.
    """

    def __init__(
        self,
        *,
        redis: RedisClient,
        prefix: str,
        allowance: Allowance,
        clock: Callable[[], float],
        deadline: float = 1.0,
    ) -> None:
        self._attempt = _script(redis, "attempt.lua")
        self._forgive = _script(redis, "forgive.lua")
        self._prefix = f"{prefix}{{login}}:"
        self._allowance = allowance
        self._deadline = deadline
        self._local = LocalAttempts(window=allowance.window, clock=clock)

    async def take(self, email: str, address: str) -> None:
        """Count one. Raises ApiError 429 when there were too many."""
        keys = self._keys(email, address)
        most = [self._allowance.account, self._allowance.address]
        milliseconds = int(self._allowance.window * 1000)
        try:
            async with asyncio.timeout(self._deadline):
                wait = await self._attempt(keys=keys, args=[milliseconds, *most]) / 1000
        except (RedisError, OSError, TimeoutError) as error:
            _log.warning("logins are counted in this process only", error=type(error).__name__)
            wait = self._local.take(keys, most)
        if wait:
            raise _too_many(wait)

    async def forgive(self, email: str, address: str) -> None:
        """It succeeded: the account starts anew, and the address gets its attempt back."""
        keys = self._keys(email, address)
        self._local.forgive(keys[0])
        try:
            async with asyncio.timeout(self._deadline):
                await self._forgive(keys=keys, args=[])
        except (RedisError, OSError, TimeoutError) as error:
            _log.warning("a good login stays counted", error=type(error).__name__)

    def _keys(self, email: str, address: str) -> list[str]:
        # Hashed: a key's length is bounded then, and Redis holds no list of who signs in.
        hashed = hashlib.sha256(email.encode(errors="replace")).hexdigest()
        return [f"{self._prefix}account:{hashed}", f"{self._prefix}address:{_network(address)}"]


def _script(redis: RedisClient, name: str) -> Callable[..., Awaitable[int]]:
    text = _SCRIPTS.joinpath(name).read_text()
    return cast(Callable[..., Awaitable[int]], redis.register_script(text))


class LocalAttempts:
    """The same count in memory, for the keys used last."""

    def __init__(self, *, window: float, clock: Callable[[], float]) -> None:
        self._window = window
        self._clock = clock
        self._counts: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def take(self, keys: list[str], most: list[int]) -> float:
        """Count one under each key; or the seconds to wait, and nothing is counted."""
        now = self._clock()
        found = [self._current(key, now) for key in keys]
        full = [
            end - now for (count, end), limit in zip(found, most, strict=True) if count >= limit
        ]
        if full:
            return max(full)
        for key, (count, end) in zip(keys, found, strict=True):
            self._counts[key] = (count + 1, end)
            self._counts.move_to_end(key)
        while len(self._counts) > _MOST_COUNTERS:
            self._counts.popitem(last=False)
        return 0.0

    def forgive(self, key: str) -> None:
        """Start a key anew."""
        self._counts.pop(key, None)

    def _current(self, key: str, now: float) -> tuple[int, float]:
        count, end = self._counts.get(key, (0, 0.0))
        return (count, end) if now < end else (0, now + self._window)


def _network(address: str) -> str:
    """An IPv6 host has a network of addresses to itself."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return "unknown"
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        shift = 128 - _IPV6_NETWORK
        return str(IPv6Address(int(parsed) >> shift << shift))
    return str(parsed)


def _too_many(seconds: float) -> ApiError:
    return ApiError(
        429,
        "too many attempts to sign in; try again later",
        headers={"retry-after": str(math.ceil(seconds))},
        text="error_message",
    )
