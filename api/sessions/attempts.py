"""Guards every check of a password by a slot and by a count of failed attempts.

Attempts are counted by account and network together, in Redis.
"""

import asyncio
import hashlib
import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from ipaddress import IPv6Address, ip_address
from typing import cast

import structlog
from redis.exceptions import RedisError

from api.errors import ApiError
from api.slots import FairSlots
from catalog.redis_connection import RedisClient

_log = structlog.get_logger(__name__)
_SCRIPTS = files("api.sessions").joinpath("scripts")
_IPV6_NETWORK = 64
_MOST_COUNTERS = 10_000


@dataclass(frozen=True, kw_only=True)
class LoginAllowance:
    """The failed attempts that one account may have from one network in `window` seconds."""

    failures: int
    window: float


class LoginAttempts:
    """Counts attempts by account and network together, in Redis.

    So nobody can lock the account's owner out from elsewhere, or other users of a network out of
    their accounts. While Redis does not answer, each process counts alone. `deadline` (seconds)
    bounds a call to Redis.
    """

    def __init__(
        self,
        *,
        redis: RedisClient,
        prefix: str,
        allowance: LoginAllowance,
        clock: Callable[[], float],
        deadline: float = 1.0,
    ) -> None:
        self._redis = redis
        self._attempt = _script(redis, "attempt.lua")
        self._give_back = _script(redis, "give_back.lua")
        self._prefix = f"{prefix}login:"
        self._allowance = allowance
        self._deadline = deadline
        self._local = LocalLoginAttempts(allowance=allowance, clock=clock)

    async def take(self, email: str, network: str) -> None:
        """Count one attempt. Raises ApiError 429 after too many."""
        key = self._key(email, network)
        milliseconds = int(self._allowance.window * 1000)
        try:
            async with asyncio.timeout(self._deadline):
                args = [milliseconds, self._allowance.failures]
                wait = await self._attempt(keys=[key], args=args) / 1000
        except (RedisError, OSError, TimeoutError) as error:
            _log.warning("logins are counted in this process only", error=type(error).__name__)
            wait = self._local.take(key)
        if wait:
            raise _too_many(wait)

    async def forgive(self, email: str, network: str) -> None:
        """Reset the count after a success."""
        key = self._key(email, network)
        self._local.forgive(key)
        try:
            async with asyncio.timeout(self._deadline):
                await self._redis.delete(key)
        except (RedisError, OSError, TimeoutError) as error:
            _log.warning("a successful login stays counted", error=type(error).__name__)

    async def give_back(self, email: str, network: str) -> None:
        """Subtract one attempt that failed through no fault of the caller."""
        key = self._key(email, network)
        self._local.give_back(key)
        try:
            async with asyncio.timeout(self._deadline):
                await self._give_back(keys=[key], args=[])
        except (RedisError, OSError, TimeoutError) as error:
            _log.warning("a login that was not checked stays counted", error=type(error).__name__)

    def _key(self, email: str, network: str) -> str:
        # Hashed, so that the key's length is bounded and Redis holds no list of accounts.
        written = f"{email}\n{network}".encode(errors="replace")
        return self._prefix + hashlib.sha256(written).hexdigest()


def _script(redis: RedisClient, name: str) -> Callable[..., Awaitable[int]]:
    text = _SCRIPTS.joinpath(name).read_text()
    return cast(Callable[..., Awaitable[int]], redis.register_script(text))


class LocalLoginAttempts:
    """The same count in memory, for a bounded number of recently used keys."""

    def __init__(self, *, allowance: LoginAllowance, clock: Callable[[], float]) -> None:
        self._allowance = allowance
        self._clock = clock
        self._counts: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def take(self, key: str) -> float:
        """Count one attempt and return 0, or return the seconds to wait and count nothing."""
        now = self._clock()
        count, end = self._counts.get(key, (0, 0.0))
        if now >= end:
            count, end = 0, now + self._allowance.window
        if count >= self._allowance.failures:
            return end - now
        self._counts[key] = (count + 1, end)
        self._counts.move_to_end(key)
        if len(self._counts) > _MOST_COUNTERS:
            self._counts.popitem(last=False)
        return 0.0

    def forgive(self, key: str) -> None:
        """Reset the count of a key."""
        self._counts.pop(key, None)

    def give_back(self, key: str) -> None:
        """Subtract one attempt."""
        if key in self._counts:
            count, end = self._counts[key]
            self._counts[key] = (max(count - 1, 0), end)


def network_of(address: str) -> str:
    """The network of a caller: an IPv4 address, or 64 bits of an IPv6 address."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return "unknown"
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        shift = 128 - _IPV6_NETWORK
        return str(IPv6Address(int(parsed) >> shift << shift))
    return str(parsed)


def _too_many(seconds: float) -> ApiError:
    return ApiError(
        429,
        "too many attempts to sign in; try again later",
        headers={"retry-after": str(math.ceil(seconds))},
    )


@dataclass
class PasswordAttempt:
    """One check of a password; the caller sets `right`."""

    right: bool = False


class PasswordGate:
    """Lets a caller check a password once its network has a free slot, and not too often.

    The count is read while the slot is held, so that a flood of attempts costs Redis and SQL no
    more than there are slots.
    """

    def __init__(self, *, slots: FairSlots, attempts: LoginAttempts) -> None:
        self._slots = slots
        self._attempts = attempts

    @asynccontextmanager
    async def attempt(self, email: str, address: str) -> AsyncIterator[PasswordAttempt]:
        """An attempt from `address`. Raises ApiError 429 or 503.

        An attempt that ends in an error is no failure of the caller and is not counted.
        """
        network = network_of(address)
        async with self._slots.slot(network):
            await self._attempts.take(email, network)
            attempt = PasswordAttempt()
            try:
                yield attempt
            except BaseException:
                await self._attempts.give_back(email, network)
                raise
            if attempt.right:
                await self._attempts.forgive(email, network)
