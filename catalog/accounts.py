"""Creates and changes accounts for the operators of the service. There is no sign-up.

Passwords are hashed with argon2id, with the library's current parameters.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from catalog.database import Database
from catalog.errors import AccountError
from catalog.inputs import AREAS, NOTHING
from catalog.models import Account, Company

MIN_PASSWORD_LENGTH = 8
_hasher = PasswordHasher()


def hash_password(password: str) -> str:
    """The hash to store. Takes tens of milliseconds and tens of MB: run it in a thread."""
    return _hasher.hash(password)


def verify_password(stored: str, password: str) -> bool:
    """Whether the password matches the stored hash; takes as long as hashing."""
    try:
        return _hasher.verify(stored, password)
    except (VerificationError, InvalidHashError):
        return False


def is_id(text: str) -> bool:
    """Whether a text can be an id; its digits fit every database's integers."""
    return text.isascii() and text.isdigit() and len(text) <= 18


async def create_account(
    database: Database,
    *,
    company: str,
    email: str,
    password: str,
    permission: Mapping[str, int],
    create_company: bool = True,
    now: datetime,
    **profile: str | None,
) -> None:
    """Create an account; areas that `permission` lacks get level 0. `profile`: name, fonction.

    Create a missing company too, if `create_company` allows it. Raises AccountError,
    SQLAlchemyError or OSError; then nothing has changed.
    """
    hashed = _hashed(password)
    try:
        async with database.write.begin() as session:
            found = await session.scalar(select(Company).where(Company.name == company))
            if found is None and not create_company:
                raise AccountError(f"there is no company {company!r}; see --create-company")
            session.add(
                Account(
                    company=found or Company(name=company, create_on=now),
                    email=email,
                    password_hash=hashed,
                    permission=dict.fromkeys(AREAS, NOTHING) | dict(permission),
                    create_on=now,
                    **profile,
                )
            )
    except IntegrityError:
        raise AccountError(f"there is an account {email} already") from None


async def set_password(database: Database, email: str, password: str) -> None:
    """Change the password, which ends the account's sessions. Raises as `create_account`."""
    hashed = _hashed(password)
    async with _changing(database, email) as account:
        account.password_hash = hashed


async def set_permissions(
    database: Database, email: str, permission: Mapping[str, int]
) -> dict[str, int]:
    """Change the levels of the given areas. Returns the new levels of all areas."""
    async with _changing(database, email) as account:
        account.permission = account.permission | dict(permission)
        return dict(account.permission)


async def set_active(database: Database, email: str, active: bool) -> None:
    """Allow or forbid the account to sign in. Either way its sessions end."""
    async with _changing(database, email) as account:
        account.active = active


async def list_accounts(database: Database) -> Sequence[Any]:
    """Rows of email, company, active and permission, by company and e-mail."""
    query = (
        select(Account.email, Company.name.label("company"), Account.active, Account.permission)
        .join(Account.company)
        .order_by(Company.name, Account.email)
    )
    async with database.read() as session:
        return (await session.execute(query)).all()


@asynccontextmanager
async def _changing(database: Database, email: str) -> AsyncIterator[Account]:
    query = select(Account).where(Account.email == email).with_for_update()
    async with database.write.begin() as session:
        account = await session.scalar(query)
        if account is None:
            raise AccountError(f"there is no account {email}")
        yield account


def _hashed(password: str) -> str:
    if len(password) < MIN_PASSWORD_LENGTH:
        raise AccountError(f"the password is too short: {MIN_PASSWORD_LENGTH} characters at least")
    return hash_password(password)
