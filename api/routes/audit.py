"""GET /audit: who changed what, and when."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import Field
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import Response

from api.answers import Answer, Id, Record, Timestamp, answer, timestamp
from api.openapi.operations import operation
from api.permissions import AREAS, AuthorizedCaller, may_read
from api.records.page import Page, Where, columns_of, fetch
from api.retrieval import PAGE, After, Limit, listed
from api.routes.parameters import PREFIX
from catalog.audit import AUDITED_KINDS
from catalog.fields.company import READ
from catalog.fields.values import INT64
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
    kind: str = Field(json_schema_extra={"enum": list(AUDITED_KINDS)})
    ref: Id = Field(description="The id of the record.")
    before: Changed
    after: Changed


_ENTRY = columns_of(AuditEntryAnswer, AuditEntry)


async def _entries(session: AsyncSession, where: Where, page: Page) -> list[Record]:
    """Audit entries, in one query."""
    return _shown(await fetch(session, AuditEntryAnswer, _ENTRY, AuditEntry.id, where, page))


async def _newest(session: AsyncSession, where: Where, limit: int) -> list[Record]:
    """The newest audit entries first, in one query."""
    query = _ENTRY.where(*where).order_by(AuditEntry.id.desc()).limit(limit)
    return _shown([dict(row) for row in (await session.execute(query)).mappings()])


def _shown(found: list[Record]) -> list[Record]:
    for record in found:
        record["create_on"] = timestamp(record["create_on"])
    return found


router = APIRouter(prefix=PREFIX, tags=["audit"])
Before = Annotated[
    int | None,
    Query(
        ge=1,
        le=INT64,
        description=f"Only records whose id is smaller, the newest first, {PAGE} at most.",
    ),
]
# Accounts belong to the area `profile`.
_AREAS = AREAS | {"account": "profile"}


@router.get("/audit", **operation("Audit", list[AuditEntryAnswer]))
async def list_audit(
    caller: Annotated[AuthorizedCaller, may_read("audit")],
    limit: Limit = None,
    after: After = 0,
    before: Before = None,
) -> Response:
    """Changes by the company's accounts, the oldest first; with `before` the newest first.

    The list contains changes of records that the account may read. Of a secret it shows only that
    it changed. Long texts are shortened.
    """
    kinds = [kind for kind in AUDITED_KINDS if caller.account.level(_AREAS[kind]) >= READ]
    where: Where = (AuditEntry.company_id == caller.company_id, AuditEntry.kind.in_(kinds))
    if before is not None:
        where = (*where, AuditEntry.id < before, AuditEntry.id > after)
        async with caller.services.database.autocommit() as session:
            return answer(await _newest(session, where, min(limit or PAGE, PAGE)))
    return await listed(caller, _entries, where, after=after, limit=limit)
