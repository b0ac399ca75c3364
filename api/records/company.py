"""The profile, the applications, the connector."""

from typing import Any

from sqlalchemy import ColumnElement, select
from sqlalchemy.ext.asyncio import AsyncSession

from api.answers import timestamp
from api.records.page import Page, Record, fetch
from catalog.fields.company import AREAS, NOTHING
from catalog.models import Account, Application, Company, Connector
from catalog.models.base import at_offset
from catalog.secrets import Cipher

_APPLICATION = select(
    Application.id,
    Application.name,
    Application.type,
    Application.api_key,
    Application.api_id,
    Application.active,
    Application.expire_on,
    Application.expire_offset,
)
_PROFILE = select(Account, Company).join(Account.company)


async def profile(session: AsyncSession, account_id: int) -> Record | None:
    """The account and its company: one query. None when it has just been deleted."""
    row = (await session.execute(_PROFILE.where(Account.id == account_id))).one_or_none()
    if row is None:
        return None
    account, company = row
    return {
        "id": account.id,
        "email": account.email,
        "name": account.name or "",
        "fonction": account.fonction or "",
        "active": account.active,
        "company": {
            "id": company.id,
            "name": company.name,
            "image": company.image or "",
            "description": company.description or "",
            "active": company.active,
            "create_on": timestamp(company.create_on),
        },
        "permission": {area: account.permission.get(area, NOTHING) for area in AREAS},
    }


async def applications(
    session: AsyncSession, where: tuple[ColumnElement[bool], ...], page: Page
) -> list[Record]:
    """Applications: one query."""
    found = await fetch(session, _APPLICATION, Application.id, where, page)
    for record in found:
        expire_on, offset = record["expire_on"], record.pop("expire_offset")
        record["expire_on"] = None if expire_on is None else timestamp(at_offset(expire_on, offset))
    return found


def connector(stored: Connector, cipher: Cipher) -> dict[str, Any]:
    """A connector for its holder; of the signing secret only whether there is one.

    Raises DecryptionError.
    """
    return {
        "id": stored.id,
        "name": stored.name,
        "url": stored.url,
        "method": stored.method,
        "auth": stored.auth,
        "parameters": cipher.decrypt(stored.parameters),
        "signed": stored.secret is not None,
    }
