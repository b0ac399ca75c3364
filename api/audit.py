"""GET /audit: who changed what, and when."""

from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from api.answers import INT64, Answer, Id, Timestamp
from api.bodies import LISTING, Listing
from api.permissions import AREAS, PREFIX, AuthorizedCaller, may_read
from api.tenancy import PAGE, listed, of_company
from catalog.audit import AUDITED_KINDS
from catalog.inputs import READ
from catalog.models import AuditEntry

router = APIRouter(prefix=PREFIX, tags=["audit"])
# Accounts belong to the area `profile`.
_AREAS = AREAS | {"account": "profile"}
Before = Annotated[
    int | None,
    Query(
        ge=1,
        le=INT64,
        description=f"Only records whose id is smaller, the newest first, {PAGE} at most.",
    ),
]


class AuditEntryAnswer(Answer):
    """One change of one record. `before` and `after` have the fields that changed."""

    id: Id
    create_on: Timestamp
    account_id: Id
    email: str
    request: str = Field(description="The `x-request-id` of the request.")
    action: Literal["create", "edit", "delete", "restore"]
    kind: str = Field(json_schema_extra={"enum": list(AUDITED_KINDS)})
    ref: Id = Field(description="The id of the record.")
    name: str = Field(description="The record's name at that time; empty for devices, accounts.")
    before: dict[str, Any]
    after: dict[str, Any]


@router.get("/audit", response_model=list[AuditEntryAnswer])
async def list_audit(
    caller: Annotated[AuthorizedCaller, may_read("audit")],
    listing: Listing = LISTING,
    before: Before = None,
) -> Response:
    """Changes by the company's accounts, the oldest first; with `before` the newest first.

    The list contains changes of records that the account may read. Of a secret it shows only that
    it changed. Long texts are shortened.
    """
    kinds = [kind for kind in AUDITED_KINDS if caller.account.level(_AREAS[kind]) >= READ]
    query = of_company(AuditEntry, caller.company_id).where(AuditEntry.kind.in_(kinds))
    if before is not None:
        query, listing = query.where(AuditEntry.id < before), replace(listing, sort="-id")
    return await listed(caller, query, AuditEntryAnswer, listing)
