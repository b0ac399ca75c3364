"""GET /audit: who changed what, and when."""

from typing import Annotated

from fastapi import APIRouter
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import Response

from api.openapi.operations import operation
from api.permissions import AREAS, Caller, may_read
from api.records import audit
from api.records.page import Page, Record
from api.routes.parameters import PREFIX
from api.streaming import After, Limit, listed
from catalog.audit import AUDITED_KINDS
from catalog.fields.company import READ
from catalog.models import AuditEntry

router = APIRouter(prefix=PREFIX)
# An account is of the profile.
_AREAS = AREAS | {"account": "profile"}


@router.get("/audit", **operation("Audit", tag="audit", answers="AuditEntry", many=True))
async def list_audit(
    caller: Annotated[Caller, may_read("audit")], limit: Limit = None, after: After = 0
) -> Response:
    """Changes that the company's accounts made here, the oldest first.

    Those of records that the account may read. Secrets are left out: of them only that they
    changed. Long texts are shortened.
    """
    kinds = [kind for kind in AUDITED_KINDS if caller.account.level(_AREAS[kind]) >= READ]
    where = (AuditEntry.company_id == caller.company_id, AuditEntry.kind.in_(kinds))

    async def read(session: AsyncSession, page: Page) -> list[Record]:
        return await audit.entries(session, where, page)

    return await listed(caller.services.database, read, after=after, limit=limit)
