"""Signs in: checks e-mail and password and creates a session."""

import asyncio
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from api.errors import unavailable
from api.sessions.attempts import PasswordGate
from api.sessions.check import SignedIn, token_hash
from catalog.access import KEPT_SESSION
from catalog.database import Database
from catalog.models import Account, Company, Session
from catalog.passwords import hash_password, verify_password

PASSWORD_WORKERS = 2
LIFETIME = timedelta(hours=24)
_TOKEN_BYTES = 32
_VERIFY_SECONDS = 10.0
T = TypeVar("T")
_STORED = select(Account.password_hash).join(Account.company).where(Account.active, Company.active)


class GrantedSession(NamedTuple):
    """A new session."""

    token: str
    email: str
    valid: datetime


class Passwords:
    """Checks passwords in threads of its own, `workers` at a time; each check takes 64 MB.

    The owner closes it.
    """

    def __init__(self, *, workers: int = PASSWORD_WORKERS) -> None:
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="password")
        # Checked for an unknown e-mail, so that the answer takes as long as for a known one.
        self._nobody = hash_password(secrets.token_urlsafe())

    async def is_right(self, stored: str | None, password: str) -> bool:
        """Whether the password is right; False without a stored hash. Raises ApiError 503."""
        right = await self._in_thread(verify_password, stored or self._nobody, password)
        return right and stored is not None

    async def hashed(self, password: str) -> str:
        """The hash to store. Raises ApiError 503."""
        return await self._in_thread(hash_password, password)

    async def _in_thread(self, work: Callable[..., T], *given: str) -> T:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_VERIFY_SECONDS):
                return await loop.run_in_executor(self._threads, work, *given)
        except TimeoutError:
            raise unavailable("too many sign in at once") from None

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class SignIn:
    """Creates, changes and ends sessions. `clock` gives the time, aware."""

    def __init__(
        self,
        *,
        database: Database,
        gate: PasswordGate,
        passwords: Passwords,
        clock: Callable[[], datetime],
    ) -> None:
        self._database = database
        self._gate = gate
        self._passwords = passwords
        self._clock = clock

    async def sign_in(self, email: str, password: str, address: str) -> GrantedSession | None:
        """A new session, or None if e-mail and password match no account that may sign in.

        Raises ApiError 429 or 503, and the errors of SQL.
        """
        email = email.strip().lower()
        async with self._gate.attempt(email, address) as attempt:
            async with self._database.autocommit() as session:
                stored = await session.scalar(_STORED.where(Account.email == email))
            attempt.right = await self._passwords.is_right(stored, password)
        return await self._grant(email, stored or "") if attempt.right else None

    async def change(
        self, account: SignedIn, address: str, token: str, *, old: str, new: str
    ) -> bool:
        """Set a new password if the old one is right, and end the account's other sessions.

        Raises as `sign_in` does, because a stolen token must not make guessing faster.
        """
        number = account.account_id
        async with self._gate.attempt(account.email, address) as attempt:
            async with self._database.autocommit() as session:
                stored = await session.scalar(_STORED.where(Account.id == number))
            attempt.right = await self._passwords.is_right(stored, old)
            if not attempt.right:
                return False
            hashed = await self._passwords.hashed(new)
        query = select(Account).where(Account.id == number, Account.password_hash == stored)
        async with self._database.write.begin() as session:
            session.info[KEPT_SESSION] = token_hash(token)
            found = await session.scalar(query.with_for_update())
            if found is not None:
                found.password_hash = hashed
        return found is not None

    async def sign_out(self, token: str) -> None:
        """End the session of a token, in every process."""
        query = select(Session).where(Session.token_hash == token_hash(token))
        async with self._database.write.begin() as session:
            found = await session.scalar(query)
            if found is not None:
                await session.delete(found)

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
                    account_id=account_id,
                    token_hash=token_hash(token),
                    create_on=now,
                    valid=valid,
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
