"""The audit: who changed what, and when."""

from typing import Annotated, Any, Literal

from pydantic import Field
from sqlalchemy.ext.asyncio import AsyncSession

from api.answers import Answer, Id, Record, Timestamp, timestamp
from api.records.page import Page, Where, columns_of, fetch
from catalog.audit import KINDS
from catalog.models import AuditEntry

Changed = Annotated[
    dict[str, Any], Field(description="The fields that changed; secrets are masked.")
]


class AuditEntryAnswer(Answer):
    id: Id
    create_on: Timestamp
    account_id: Id
    email: str
    request: str = Field(description="The `x-request-id` of the request.")
    action: Literal["create", "edit", "delete"]
    kind: str = Field(json_schema_extra={"enum": list(KINDS)})
    ref: Id = Field(description="The id of the record.")
    before: Changed
    after: Changed


_ENTRY = columns_of(AuditEntryAnswer, AuditEntry)


async def entries(session: AsyncSession, where: Where, page: Page) -> list[Record]:
    """Entries: one query."""
    found = await fetch(session, AuditEntryAnswer, _ENTRY, AuditEntry.id, where, page)
    for record in found:
        record["create_on"] = timestamp(record["create_on"])
    return found
