"""The records of a company: profile, applications, connector."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema
from sqlalchemy import bindparam

from api.answers import Answer, Id, Record, Text, Timestamp, fill_texts, timestamp
from api.records.page import RecordKind, columns_of
from catalog.fields.company import AREAS, NOTHING, WRITE
from catalog.models import Account, Application, Company, Connector
from catalog.models.base import at_offset
from catalog.reading import Reader, Reading
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


_OF_COMPANY = "company_"
_PROFILE = Reading(
    columns_of(
        ProfileAnswer,
        Account,
        *(getattr(Company, name).label(_OF_COMPANY + name) for name in CompanyAnswer.model_fields),
    )
    .join(Account.company)
    .where(Account.id == bindparam("account"))
)


def profile(reader: Reader, account_id: int) -> Record | None:
    """The account and its company, in one query. None if it has just been deleted."""
    row = reader.row(_PROFILE, account=account_id)
    if row is None:
        return None
    company = {name: row.pop(_OF_COMPANY + name) for name in CompanyAnswer.model_fields}
    company["create_on"] = timestamp(company["create_on"])
    fill_texts([company], CompanyAnswer)
    fill_texts([row], ProfileAnswer)
    return row | {"company": company, "permission": _all_areas(row["permission"])}


def _expiring(_reader: Reader, found: list[Record]) -> list[Record]:
    for record in found:
        expire_on, offset = record["expire_on"], record.pop("expire_offset")
        record["expire_on"] = None if expire_on is None else timestamp(at_offset(expire_on, offset))
    return found


APPLICATIONS = RecordKind(
    "application",
    ApplicationAnswer,
    columns_of(ApplicationAnswer, Application, Application.expire_offset),
    key=Application.id,
    company=Application.company_id,
    complete=_expiring,
)


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
