"""Signs accounts in and out, finds the account of a session, and limits guesses of passwords.

Failed attempts are counted by account and network together. So nobody can lock the account's owner
out from elsewhere, or other users of a network out of their accounts.
"""

import asyncio
import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv6Address, ip_address, ip_network
from typing import NamedTuple
from weakref import WeakValueDictionary

import structlog
from redis.exceptions import RedisError
from sqlalchemy import ColumnElement, delete, select

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
_ADD = """
local count = redis.call('INCRBY', KEYS[1], ARGV[1])
if count == tonumber(ARGV[1]) then redis.call('EXPIRE', KEYS[1], ARGV[2]) end
return {count, redis.call('TTL', KEYS[1])}
"""
_SIGNED_IN = (
    select(Account.id, Account.company_id, Account.email, Account.permission, Session.valid)
    .join_from(Session, Account, Session.account_id == Account.id)
    .join(Company, Account.company_id == Company.id)
    .where(Account.active, Company.active)
)
_MAY_SIGN_IN = select(Account).join(Account.company).where(Account.active, Company.active)


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


class Failures(NamedTuple):
    """A number of failures, and the time at which they are forgotten (monotonic seconds)."""

    number: int
    ends: float


class FailureCounts:
    """Counts failures by key for `window` seconds from the first one.

    They are in Redis; while it does not answer, each process counts alone.
    """

    def __init__(self, *, redis: RedisClient, prefix: str, window: int) -> None:
        self._redis = redis
        self._prefix = prefix
        self._window = window
        self._own: dict[str, Failures] = {}

    async def add(self, key: str, number: int) -> Failures:
        """Add to the failures of a key; 0 reads them. Returns the sum."""
        now = time.monotonic()
        try:
            async with asyncio.timeout(_REDIS_SECONDS):
                name = f"{self._prefix}login:{key}"
                counted = self._redis.eval(_ADD, 1, name, str(number), str(self._window))
                found, seconds = await counted
            return Failures(int(found), now + int(seconds))
        except (RedisError, OSError) as error:
            _log.warning("logins are counted in this process only", error=type(error).__name__)
        self._own = {each: kept for each, kept in self._own.items() if kept.ends > now}
        before = self._own.get(key, Failures(0, now + self._window))
        self._own[key] = Failures(before.number + number, before.ends)
        return self._own[key]


def token_hash(token: str) -> str:
    """The hash of a token, which is stored in its place."""
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


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


class Sessions:
    """Finds, creates and ends sessions in SQL. `clock` gives the time, aware.

    After `most_failures` an account's password is not checked for that network. A caller waits
    behind others of its account, then of its network, then of all: so guesses at one account do not
    delay another, and a network with many requests gets no more than its share. Every method raises
    the errors of SQL.
    """

    def __init__(
        self,
        *,
        database: Database,
        failures: FailureCounts,
        most_failures: int,
        clock: Callable[[], datetime],
    ) -> None:
        self._database = database
        self._failures = failures
        self._most_failures = most_failures
        self._clock = clock
        # Checked for an unknown e-mail, so that the answer takes as long as for a known one.
        self._nobody = hash_password(secrets.token_urlsafe())
        # A semaphore exists while somebody holds it or waits for it.
        self._waiting: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._free = asyncio.Semaphore(_WORKERS)

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
        account = Account.email == email
        stored = await self._verified_hash(account, email, address, password)
        if stored is None:
            return None
        now, token = self._clock(), secrets.token_urlsafe(_TOKEN_BYTES)
        granted = GrantedSession(token, email, now + LIFETIME)
        # Only if the password that was checked is still the current one.
        query = _MAY_SIGN_IN.where(account, Account.password_hash == stored)
        async with self._database.write.begin() as session:
            found = await session.scalar(query.with_for_update(read=True, of=Account))
            if found is None:
                return None
            await session.execute(delete(Session).where(Session.valid <= now))
            new = {"token_hash": token_hash(token), "create_on": now, "valid": granted.valid}
            session.add(Session(account_id=found.id, **new))
        return granted

    async def change_password(
        self, account: SignedIn, address: str, token: str, *, old: str, new: str
    ) -> bool:
        """Set a new password if the old one is right, and end the account's other sessions.

        Raises as `sign_in` does, because a stolen token must not make guessing faster.
        """
        own = Account.id == account.account_id
        stored = await self._verified_hash(own, account.email, address, old)
        if stored is None:
            return False
        async with self._free:
            hashed = await asyncio.to_thread(hash_password, new)
        query = select(Account).where(own, Account.password_hash == stored)
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

    async def _verified_hash(
        self, account: ColumnElement[bool], email: str, address: str, password: str
    ) -> str | None:
        """The stored hash if the password is right. Raises ApiError 429 after too many failures.

        An attempt that ends in an error is no failure of the caller and is not counted.
        """
        network = network_of(address)
        # Hashed, so that the key's length is bounded and Redis holds no list of accounts.
        key = hashlib.sha256(f"{email}\n{network}".encode(errors="replace")).hexdigest()
        async with self._semaphore(key, 1):
            failures = await self._failures.add(key, 0)
            if failures.number >= self._most_failures:
                seconds = max(round(failures.ends - time.monotonic()), 1)
                message = "too many attempts to sign in; try again later"
                raise ApiError(429, message, headers={"retry-after": str(seconds)})
            async with self._semaphore(network, _WORKERS), self._free:
                async with self._database.autocommit() as session:
                    query = _MAY_SIGN_IN.with_only_columns(Account.password_hash)
                    stored = await session.scalar(query.where(account))
                checked = stored or self._nobody
                right = await asyncio.to_thread(verify_password, checked, password)
            if right and stored is not None:
                await self._failures.add(key, -failures.number)
                return stored
            await self._failures.add(key, 1)
            return None

    def _semaphore(self, name: str, value: int) -> asyncio.Semaphore:
        return self._waiting.setdefault(name, asyncio.Semaphore(value))
