"""Signs accounts in and out, finds the account of a session, and limits guesses of passwords.

Failed attempts are counted by account and network together, in Redis. So nobody can lock the
account's owner out from elsewhere, or other users of a network out of their accounts. While Redis
does not answer, each process counts alone.
"""

import asyncio
import hashlib
import math
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv6Address, ip_address, ip_network
from typing import NamedTuple, TypeVar
from weakref import WeakValueDictionary

import structlog
from limits import RateLimitItemPerSecond
from limits.aio.storage import MemoryStorage, Storage
from limits.aio.strategies import FixedWindowRateLimiter
from redis.exceptions import RedisError
from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from api.answers import ApiError
from catalog.accounts import hash_password, verify_password
from catalog.database import Database
from catalog.inputs import NOTHING
from catalog.models import Account, Company, Session
from catalog.redis_connection import RedisClient
from catalog.session import KEPT_SESSION

_log = structlog.get_logger(__name__)
LIFETIME = timedelta(hours=24)
_TOKEN_BYTES = 32
_WORKERS = 2  # checks of passwords at a time: each takes 64 MB and a tenth of a second
_REDIS_SECONDS = 1.0
_COUNT = """
local count = redis.call('INCRBY', KEYS[1], ARGV[1])
if count == tonumber(ARGV[1]) then redis.call('EXPIRE', KEYS[1], ARGV[2]) end
return count
"""
T = TypeVar("T")
_SIGNED_IN = (
    select(Account.id, Account.company_id, Account.email, Account.permission, Session.valid)
    .join_from(Session, Account, Session.account_id == Account.id)
    .join(Company, Account.company_id == Company.id)
    .where(Account.active, Company.active)
)
_STORED = select(Account.password_hash).join(Account.company).where(Account.active, Company.active)


@dataclass(frozen=True, kw_only=True)
class SignedIn:
    """An account with a valid session."""

    account_id: int
    company_id: int
    email: str
    permission: dict[str, int]

    def level(self, area: str) -> int:
        """The account's level in an area."""
        return self.permission.get(area, NOTHING)


class GrantedSession(NamedTuple):
    """A new session."""

    token: str
    email: str
    valid: datetime


def token_hash(token: str) -> str:
    """The hash of a token, which is stored in its place."""
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


class _RedisCounters(Storage):
    """Counters of `limits` in Redis, on the client that the process has already."""

    STORAGE_SCHEME = None

    def __init__(self, redis: RedisClient) -> None:
        super().__init__()
        self._redis = redis

    @property
    def base_exceptions(self) -> tuple[type[Exception], ...]:
        return (RedisError, OSError)

    async def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        return int(await self._redis.eval(_COUNT, 1, key, str(amount), str(expiry)))

    async def get(self, key: str) -> int:
        return int(await self._redis.get(key) or 0)

    async def get_expiry(self, key: str) -> float:
        return time.time() + max(await self._redis.ttl(key), 0)

    async def check(self) -> bool:
        return bool(await self._redis.ping())

    async def reset(self) -> int | None:
        raise NotImplementedError  # `limits` declares it; nothing clears all counters at once

    async def clear(self, key: str) -> None:
        await self._redis.delete(key)


class LoginAttempts:
    """Counts failed attempts: at most `failures` of a key in `window` seconds."""

    def __init__(self, *, redis: RedisClient, prefix: str, failures: int, window: float) -> None:
        self._item = RateLimitItemPerSecond(failures, math.ceil(window), namespace=f"{prefix}login")
        self._shared = FixedWindowRateLimiter(_RedisCounters(redis))
        self._own = FixedWindowRateLimiter(MemoryStorage())

    async def check(self, key: str) -> None:
        """Raise ApiError 429 after too many failures."""
        stats = await self._either(lambda counts: counts.get_window_stats(self._item, key))
        if stats.remaining <= 0:
            seconds = max(math.ceil(stats.reset_time - time.time()), 1)
            raise ApiError(
                429,
                "too many attempts to sign in; try again later",
                headers={"retry-after": str(seconds)},
            )

    async def note(self, key: str, *, right: bool) -> None:
        """Count a failure; reset the count after a success."""
        if right:
            await self._own.clear(self._item, key)
            await self._either(lambda counts: counts.clear(self._item, key))
        else:
            await self._either(lambda counts: counts.hit(self._item, key))

    async def _either(self, work: Callable[[FixedWindowRateLimiter], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(_REDIS_SECONDS):
                return await work(self._shared)
        except (RedisError, OSError) as error:
            _log.warning("logins are counted in this process only", error=type(error).__name__)
            return await work(self._own)


def network_of(address: str) -> str:
    """The network of a caller: an IPv4 address, or 64 bits of an IPv6 address."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return "unknown"
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ip_network((int(parsed), 64), strict=False).network_address)


@dataclass
class PasswordAttempt:
    """One check of a password; the caller sets `right`."""

    right: bool = False


class PasswordGate:
    """Lets callers check passwords, a few at a time.

    A caller waits behind others of its account, then of its network, then of all: so guesses at one
    account do not delay another, and a network with many requests gets no more than its share.
    """

    def __init__(self, attempts: LoginAttempts, *, workers: int = _WORKERS) -> None:
        self._attempts = attempts
        self._workers = workers
        # A semaphore exists while somebody holds it or waits for it.
        self._waiting: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._free = asyncio.Semaphore(workers)

    @asynccontextmanager
    async def attempt(self, email: str, address: str) -> AsyncIterator[PasswordAttempt]:
        """An attempt from `address`. Raises ApiError 429.

        An attempt that ends in an error is no failure of the caller and is not counted.
        """
        network = network_of(address)
        # Hashed, so that the key's length is bounded and Redis holds no list of accounts.
        key = hashlib.sha256(f"{email}\n{network}".encode(errors="replace")).hexdigest()
        async with self._semaphore(key, 1):
            await self._attempts.check(key)
            attempt = PasswordAttempt()
            async with self._semaphore(network, self._workers), self._free:
                yield attempt
            await self._attempts.note(key, right=attempt.right)

    def _semaphore(self, name: str, value: int) -> asyncio.Semaphore:
        return self._waiting.setdefault(name, asyncio.Semaphore(value))


class Sessions:
    """Finds, creates and ends sessions in SQL. `clock` gives the time, aware.

    Every method raises the errors of SQL.
    """

    def __init__(
        self, *, database: Database, gate: PasswordGate, clock: Callable[[], datetime]
    ) -> None:
        self._database = database
        self._gate = gate
        self._clock = clock
        # Checked for an unknown e-mail, so that the answer takes as long as for a known one.
        self._nobody = hash_password(secrets.token_urlsafe())

    async def find(self, email: str, token: str) -> SignedIn | None:
        """The account of a token, if the session is valid and the e-mail is the account's."""
        query = _SIGNED_IN.where(Session.token_hash == token_hash(token))
        async with self._database.autocommit() as session:
            row = (await session.execute(query)).one_or_none()
        if row is None or row.valid <= self._clock() or row.email != email.strip().lower():
            return None
        return SignedIn(
            account_id=row.id,
            company_id=row.company_id,
            email=row.email,
            permission=row.permission,
        )

    async def sign_in(self, email: str, password: str, address: str) -> GrantedSession | None:
        """A new session, or None if e-mail and password match no account that may sign in.

        Raises ApiError 429.
        """
        email = email.strip().lower()
        async with self._gate.attempt(email, address) as attempt:
            async with self._database.autocommit() as session:
                stored = await session.scalar(_STORED.where(Account.email == email))
            attempt.right = await self._is_right(stored, password)
        return await self._grant(email, stored or "") if attempt.right else None

    async def change_password(
        self, account: SignedIn, address: str, token: str, *, old: str, new: str
    ) -> bool:
        """Set a new password if the old one is right, and end the account's other sessions.

        Raises as `sign_in` does, because a stolen token must not make guessing faster.
        """
        number = account.account_id
        async with self._gate.attempt(account.email, address) as attempt:
            async with self._database.autocommit() as session:
                stored = await session.scalar(_STORED.where(Account.id == number))
            attempt.right = await self._is_right(stored, old)
            hashed = await asyncio.to_thread(hash_password, new) if attempt.right else ""
        if not attempt.right:
            return False
        query = select(Account).where(Account.id == number, Account.password_hash == stored)
        async with self._database.write.begin() as session:
            session.info[KEPT_SESSION] = token_hash(token)
            found = await session.scalar(query.with_for_update())
            if found is not None:
                found.password_hash = hashed
        return found is not None

    async def sign_out(self, token: str) -> None:
        """End the session of a token."""
        query = select(Session).where(Session.token_hash == token_hash(token))
        async with self._database.write.begin() as session:
            found = await session.scalar(query)
            if found is not None:
                await session.delete(found)

    async def _is_right(self, stored: str | None, password: str) -> bool:
        right = await asyncio.to_thread(verify_password, stored or self._nobody, password)
        return right and stored is not None

    async def _grant(self, email: str, stored: str) -> GrantedSession | None:
        now = self._clock()
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        async with self._database.write.begin() as session:
            account_id = await _still(session, email, stored)
            if account_id is None:
                return None
            await session.execute(delete(Session).where(Session.valid <= now))
            valid = now + LIFETIME
            session.add(
                Session(
                    account_id=account_id, token_hash=token_hash(token), create_on=now, valid=valid
                )
            )
        return GrantedSession(token, email, valid)


async def _still(session: AsyncSession, email: str, stored: str) -> int | None:
    """The account, locked, if the password that was checked is still the current one."""
    query = (
        select(Account.id)
        .join(Account.company)
        .where(Account.email == email, Account.password_hash == stored)
        .where(Account.active, Company.active)
        .with_for_update(read=True, of=Account)
    )
    return await session.scalar(query)
