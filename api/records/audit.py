"""The audit: who changed what, and when."""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, select
from sqlalchemy.ext.asyncio import AsyncSession

from api.answers import timestamp
from api.records.page import Page, Record, fetch
from catalog.models import AuditEntry

_ENTRY = select(
    AuditEntry.id,
    AuditEntry.create_on,
    AuditEntry.account_id,
    AuditEntry.email,
    AuditEntry.request,
    AuditEntry.action,
    AuditEntry.kind,
    AuditEntry.ref,
    AuditEntry.before,
    AuditEntry.after,
)


async def entries(
    session: AsyncSession, where: Sequence[ColumnElement[bool]], page: Page
) -> list[Record]:
    """Entries: one query."""
    found = await fetch(session, _ENTRY, AuditEntry.id, where, page)
    for record in found:
        record["create_on"] = timestamp(record["create_on"])
    return found
