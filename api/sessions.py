"""Signs accounts in and out, finds the account of a session, and limits guesses of passwords.

Failed attempts are counted by account and network together. So nobody can lock the account's owner
out from elsewhere, or other users of a network out of their accounts.
"""

import asyncio
import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import ip_address, ip_network

import structlog
from redis.exceptions import RedisError
from sqlalchemy import ColumnElement, delete, select

from api.answers import Answer, ApiError, Timestamp, bad_fields
from catalog.database import Database
from catalog.inputs import NOTHING
from catalog.models import Account, Company, Session
from catalog.passwords import hash_password, verify_password
from catalog.redis_connection import RedisClient
from catalog.session import KEPT_SESSION

_log = structlog.get_logger(__name__)
LIFETIME = timedelta(hours=24)
_TOKEN_BYTES = 32
LOGIN_FAILURES = 10  # of an account from one network in LOGIN_SECONDS, then it gets 429
LOGIN_SECONDS = 300
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


@dataclass(frozen=True)
class SignedIn:
    """An account with a valid session."""

    account_id: int
    company_id: int
    email: str
    permission: dict[str, int]

    def level(self, area: str) -> int:
        """The account's level in an area."""
        return self.permission.get(area, NOTHING)


class SessionAnswer(Answer):
    token: str
    email: str
    valid: Timestamp


def token_hash(token: str) -> str:
    """The hash of a token, which is stored in its place."""
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


def network_of(address: str) -> str:
    """The network of a caller: an IPv4 address, or 64 bits of an IPv6 address."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return "unknown"
    parsed = getattr(parsed, "ipv4_mapped", None) or parsed
    return str(ip_network((int(parsed), 32 if parsed.version == 4 else 64), strict=False))


@dataclass(kw_only=True, eq=False)
class Sessions:
    """Finds, creates and ends sessions in SQL. `clock` gives the time, aware.

    After LOGIN_FAILURES attempts without a success an account's password is not checked for that
    network, until LOGIN_SECONDS after the first one. They are counted in Redis; while it does not
    answer, each process counts alone. Every method raises the errors of SQL.
    """

    database: Database
    redis: RedisClient
    prefix: str
    clock: Callable[[], datetime]
    # Attempts without Redis: how many, and when they are forgotten (monotonic seconds).
    _own: dict[str, tuple[int, float]] = field(default_factory=dict)
    # Checked for an unknown e-mail, so that the answer takes as long as for a known one.
    _nobody: str = field(default_factory=lambda: hash_password(secrets.token_urlsafe()))
    _free: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_WORKERS))

    async def find(self, token: str) -> SignedIn | None:
        """The account of a token, if its session is valid."""
        query = _SIGNED_IN.where(Session.token_hash == token_hash(token))
        async with self.database.read() as session:
            row = (await session.execute(query)).one_or_none()
        if row is None or row.valid <= self.clock():
            return None
        return SignedIn(row.id, row.company_id, row.email, row.permission)

    async def sign_in(self, email: str, password: str, address: str) -> SessionAnswer:
        """A new session. Raises ApiError: 404, alike for whatever does not match, and 429."""
        email, refusal = email.strip().lower(), ApiError(404, "no user matches")
        account = Account.email == email
        stored = await self._verified_hash(account, email, address, password)
        if stored is None:
            raise refusal
        now, token = self.clock(), secrets.token_urlsafe(_TOKEN_BYTES)
        # Only if the password that was checked is still the current one.
        query = _MAY_SIGN_IN.where(account, Account.password_hash == stored)
        async with self.database.write.begin() as session:
            found = await session.scalar(query.with_for_update(read=True, of=Account))
            if found is None:
                raise refusal
            await session.execute(delete(Session).where(Session.valid <= now))
            new = {"token_hash": token_hash(token), "create_on": now, "valid": now + LIFETIME}
            session.add(Session(account_id=found.id, **new))
        return SessionAnswer.model_validate({"token": token, "email": email, "valid": new["valid"]})

    async def change_password(
        self, account: SignedIn, address: str, token: str, *, old: str, new: str
    ) -> None:
        """Set a new password, and end the account's other sessions.

        Raises ApiError: 400 if the old one is wrong, and 429 as `sign_in` does, because a stolen
        token must not make guessing faster.
        """
        refusal = bad_fields({"old_password": "this is not the account's password"})
        own = Account.id == account.account_id
        stored = await self._verified_hash(own, account.email, address, old)
        if stored is None:
            raise refusal
        async with self._free:
            hashed = await asyncio.to_thread(hash_password, new)
        query = select(Account).where(own, Account.password_hash == stored)
        async with self.database.write.begin() as session:
            session.info[KEPT_SESSION] = token_hash(token)
            found = await session.scalar(query.with_for_update())
            if found is None:
                raise refusal
            found.password_hash = hashed

    async def sign_out(self, token: str) -> None:
        """End the session of a token."""
        async with self.database.write.begin() as session:
            await session.execute(delete(Session).where(Session.token_hash == token_hash(token)))

    async def _verified_hash(
        self, account: ColumnElement[bool], email: str, address: str, password: str
    ) -> str | None:
        """The stored hash if the password is right. Raises ApiError 429 after too many attempts."""
        # Hashed, so that the key's length is bounded and Redis holds no list of accounts.
        named = f"{email}\n{network_of(address)}".encode(errors="replace")
        key = hashlib.sha256(named).hexdigest()
        # Counted before the check, so that parallel guesses are no more than others.
        attempts, seconds = await self._count(key, 1)
        if attempts > LOGIN_FAILURES:
            message = "too many attempts to sign in; try again later"
            raise ApiError(429, message, headers={"retry-after": str(max(seconds, 1))})
        async with self._free:
            async with self.database.read() as session:
                query = _MAY_SIGN_IN.with_only_columns(Account.password_hash)
                stored = await session.scalar(query.where(account))
            checked = stored or self._nobody
            is_right = await asyncio.to_thread(verify_password, checked, password)
        if stored is None or not is_right:
            return None
        await self._count(key, -attempts)
        return stored

    async def _count(self, key: str, number: int) -> tuple[int, int]:
        """Add to the attempts of a key. The sum, and the seconds until it is forgotten."""
        name = f"{self.prefix}login:{key}"
        try:
            async with asyncio.timeout(_REDIS_SECONDS):
                added = self.redis.eval(_ADD, 1, name, str(number), str(LOGIN_SECONDS))
                found, seconds = await added
            return int(found), int(seconds)
        except (RedisError, OSError) as error:
            _log.warning("logins are counted in this process only", error=type(error).__name__)
        now = time.monotonic()
        self._own = {each: kept for each, kept in self._own.items() if kept[1] > now}
        before, ends = self._own.get(key, (0, now + LOGIN_SECONDS))
        self._own[key] = before + number, ends
        return before + number, round(ends - now)
