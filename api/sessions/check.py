"""Finds the account of a session token; recently used sessions cost no query."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import select

from api.sessions.revision import AccessRevision
from catalog.database import Database
from catalog.fields.company import NOTHING
from catalog.models import Account, Company, Session

_QUERY = (
    select(Account.id, Account.company_id, Account.email, Account.permission, Session.valid)
    .join_from(Session, Account, Session.account_id == Account.id)
    .join(Company, Account.company_id == Company.id)
    .where(Account.active, Company.active)
)


@dataclass(frozen=True, kw_only=True)
class SignedIn:
    """An account with a session that was valid when it was looked up; `valid` is its end."""

    account_id: int
    company_id: int
    email: str
    permission: dict[str, int]
    valid: datetime

    def level(self, area: str) -> int:
        """The account's level in an area."""
        return self.permission.get(area, NOTHING)


def token_hash(token: str) -> str:
    """The hash of a token, which is stored in its place."""
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


class _Remembered(NamedTuple):
    revision: int
    signed_in: SignedIn


class Sessions:
    """Finds sessions in SQL and caches up to `capacity` of them, the most recently used.

    A cached session is valid until the access of any account changes (AccessRevision). `clock`
    decides when a session has ended.
    """

    def __init__(
        self,
        *,
        database: Database,
        revision: AccessRevision,
        clock: Callable[[], datetime],
        capacity: int = 10_000,
    ) -> None:
        self._database = database
        self._revision = revision
        self._clock = clock
        self._capacity = capacity
        self._remembered: OrderedDict[str, _Remembered] = OrderedDict()

    async def find(self, email: str, token: str) -> SignedIn | None:
        """The account of a token, if the session is valid and the e-mail is the account's.

        Raises the errors of SQL.
        """
        key = token_hash(token)
        revision = self._revision.known()
        found = self._recall(key, revision) or await self._look_up(key, revision)
        if found is None or found.valid <= self._clock() or found.email != email.strip().lower():
            return None
        return found

    def forget(self, token: str) -> None:
        """Drop an ended session from the cache."""
        self._remembered.pop(token_hash(token), None)

    def _recall(self, key: str, revision: int | None) -> SignedIn | None:
        held = self._remembered.get(key)
        if held is None or revision is None or held.revision != revision:
            return None
        self._remembered.move_to_end(key)
        return held.signed_in

    async def _look_up(self, key: str, revision: int | None) -> SignedIn | None:
        async with self._database.autocommit() as session:
            row = (await session.execute(_QUERY.where(Session.token_hash == key))).one_or_none()
        if row is None:
            self._remembered.pop(key, None)
            return None
        found = SignedIn(
            account_id=row.id,
            company_id=row.company_id,
            email=row.email,
            permission=row.permission,
            valid=row.valid,
        )
        if revision is not None:
            # The count is from before the query, so that a change in between invalidates the entry.
            self._remembered[key] = _Remembered(revision, found)
            if len(self._remembered) > self._capacity:
                self._remembered.popitem(last=False)
        return found
