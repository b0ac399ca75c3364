"""GET /audit: who changed what, and when."""

from typing import Annotated

from fastapi import APIRouter
from starlette.responses import Response

from api.openapi.operations import operation
from api.permissions import AREAS, AuthorizedCaller, may_read
from api.records import audit
from api.records.audit import AuditEntryAnswer
from api.retrieval import After, Limit, listed
from api.routes.parameters import PREFIX
from catalog.audit import KINDS
from catalog.fields.company import READ
from catalog.models import AuditEntry

router = APIRouter(prefix=PREFIX, tags=["audit"])
# An account is of the profile.
_AREAS = AREAS | {"account": "profile"}


@router.get("/audit", **operation("Audit", list[AuditEntryAnswer]))
async def list_audit(
    caller: Annotated[AuthorizedCaller, may_read("audit")], limit: Limit = None, after: After = 0
) -> Response:
    """Changes that the company's accounts made here, the oldest first.

    Those of records that the account may read. Secrets are left out: of them only that they
    changed. Long texts are shortened.
    """
    kinds = [kind for kind in KINDS if caller.account.level(_AREAS[kind]) >= READ]
    where = (AuditEntry.company_id == caller.company_id, AuditEntry.kind.in_(kinds))
    return await listed(caller, audit.entries, where, after=after, limit=limit)
