"""The records of a company: profile, applications, connector."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import contains_eager

from api.answers import Answer, Id, Record, Text, Timestamp, timestamp
from api.records.page import Page, Where, columns_of, fetch
from catalog.fields.company import AREAS, NOTHING, WRITE
from catalog.models import Account, Application, Connector
from catalog.models.base import at_offset
from catalog.secrets import Cipher

_LEVEL = {"type": "integer", "minimum": NOTHING, "maximum": WRITE}
_LEVELS = {
    "type": "object",
    "required": list(AREAS),
    "properties": dict.fromkeys(AREAS, _LEVEL),
    "additionalProperties": False,
}


def _all_areas(levels: dict[str, int]) -> dict[str, int]:
    return {area: levels.get(area, NOTHING) for area in AREAS}


class CompanyAnswer(Answer):
    id: Id
    name: str
    image: Text
    description: Text
    active: bool
    create_on: Timestamp


class ProfileAnswer(Answer):
    id: Id
    email: str
    name: Text
    fonction: Text
    active: bool
    company: CompanyAnswer
    permission: Annotated[dict[str, int], BeforeValidator(_all_areas), WithJsonSchema(_LEVELS)]


class ApplicationAnswer(Answer):
    id: Id
    name: str
    type: str
    api_key: str
    api_id: str
    active: bool
    expire_on: Timestamp | None


class ConnectorAnswer(Answer):
    id: Id
    name: str
    url: str
    method: Literal["GET", "POST"]
    auth: Literal["header", "get"]
    parameters: str = Field(description="A JSON list, encoded as a string.")
    signed: bool = Field(description="Whether calls are signed: the secret itself is never shown.")


_APPLICATION = columns_of(ApplicationAnswer, Application, Application.expire_offset)
_PROFILE = select(Account).join(Account.company).options(contains_eager(Account.company))


async def profile(session: AsyncSession, account_id: int) -> Record | None:
    """The account and its company, in one query. None if it has just been deleted."""
    account = await session.scalar(_PROFILE.where(Account.id == account_id))
    return None if account is None else ProfileAnswer.model_validate(account).model_dump()


async def applications(session: AsyncSession, where: Where, page: Page) -> list[Record]:
    """Applications, in one query."""
    found = await fetch(session, ApplicationAnswer, _APPLICATION, Application.id, where, page)
    for record in found:
        expire_on, offset = record["expire_on"], record.pop("expire_offset")
        record["expire_on"] = None if expire_on is None else timestamp(at_offset(expire_on, offset))
    return found


def connector(stored: Connector, cipher: Cipher) -> dict[str, Any]:
    """A connector as its company sees it: it shows only whether there is a signing secret.

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
