"""GET /audit: who changed what, and when."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import Field
from sqlalchemy import bindparam
from starlette.responses import Response

from api.answers import Answer, Id, Record, Timestamp, answer, timestamp
from api.openapi.operations import operation
from api.permissions import AREAS, AuthorizedCaller, may_read
from api.plain_route import PlainRoute
from api.records.page import RecordKind, columns_of
from api.retrieval import PAGE, After, Limit, listed
from api.routes.parameters import PREFIX
from catalog.audit import AUDITED_KINDS
from catalog.fields.company import READ
from catalog.fields.values import INT64
from catalog.models import AuditEntry
from catalog.reading import Reader, Reading, read

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


def _shown(_reader: Reader, found: list[Record]) -> list[Record]:
    for record in found:
        record["create_on"] = timestamp(record["create_on"])
    return found


_ENTRIES = columns_of(AuditEntryAnswer, AuditEntry).where(
    AuditEntry.kind.in_(bindparam("kinds", expanding=True))
)
_OLDEST_FIRST = RecordKind(
    "audit entry",
    AuditEntryAnswer,
    _ENTRIES,
    key=AuditEntry.id,
    company=AuditEntry.company_id,
    complete=_shown,
)
_NEWEST_FIRST = Reading(
    _ENTRIES.where(
        AuditEntry.company_id == bindparam("company"),
        AuditEntry.id < bindparam("before"),
        AuditEntry.id > bindparam("after"),
    )
    .order_by(AuditEntry.id.desc())
    .limit(bindparam("limit"))
)


router = APIRouter(route_class=PlainRoute, prefix=PREFIX, tags=["audit"])
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
    if before is None:
        return await listed(caller, _OLDEST_FIRST, after=after, limit=limit, kinds=kinds)
    newest = {"before": before, "after": after, "limit": min(limit or PAGE, PAGE), "kinds": kinds}
    company = caller.company_id

    def work(reader: Reader) -> list[Record]:
        return _shown(reader, reader.rows(_NEWEST_FIRST, company=company, **newest))

    return answer(await read(caller.services.database, work))
