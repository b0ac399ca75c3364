"""Who changed what in the catalog, and when."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from catalog.models.base import Base, Instant, Numbered


class AuditEntry(Numbered, Base):
    """One change of one record; never changed itself. No foreign keys: it outlives all of them.

    `action` is create, edit or delete; `kind` and `ref` name the record; `before` and `after`
    hold the fields that changed, without secrets, long texts shortened.
    """

    __tablename__ = "audit_entry"
    __table_args__ = (Index(None, "company_id", "id"),)

    company_id: Mapped[int] = mapped_column(BigInteger)
    create_on: Mapped[datetime] = mapped_column(Instant)
    account_id: Mapped[int] = mapped_column(BigInteger)
    email: Mapped[str] = mapped_column(String(255))
    request: Mapped[str] = mapped_column(String(64))
    action: Mapped[str] = mapped_column(String(16))
    kind: Mapped[str] = mapped_column(String(16))
    ref: Mapped[int] = mapped_column(BigInteger)
    before: Mapped[dict[str, Any]] = mapped_column(JSON)
    after: Mapped[dict[str, Any]] = mapped_column(JSON)
