"""Notes who changed what, in the transaction that changes it.

`CatalogSession` does it for every record that is written while somebody is named (`authored`), so
that no operation can forget it. Without an author, as when a catalog file is loaded, nothing is
noted. Secrets are left out: of them only that they changed.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import structlog
from sqlalchemy import event, insert, inspect
from sqlalchemy.orm import AttributeState, LoaderCallableStatus, Session, UOWTransaction

from catalog.models import (
    Account,
    Application,
    AuditEntry,
    Beacon,
    Campaign,
    Connector,
    Device,
    Geofence,
    Venue,
)
from catalog.session import CatalogSession
from catalog.soft_deletion import is_soft_deleted

_log = structlog.get_logger(__name__)
_KINDS: dict[type, str] = {
    Account: "account",
    Application: "application",
    Beacon: "beacon",
    Campaign: "campaign",
    Connector: "connector",
    Device: "device",
    Geofence: "geofence",
    Venue: "venue",
}
AUDITED_KINDS = tuple(_KINDS.values())
_SECRET = frozenset(("password_hash", "parameters", "secret", "api_key", "token_push"))
# An offset is how its instant is written, and no field of its own.
_UNSAID = frozenset(("id", "company_id", "create_on", "update_on", "deleted_at", "expire_offset"))
_TIES = frozenset(("tags", "beacons", "geofencings"))
_HIDDEN = "*****"
_LONGEST = 200
_MOST = 100
_TOLD = "audited"


@dataclass(frozen=True, kw_only=True)
class Author:
    """Who writes, for which company, in which request."""

    company_id: int
    account_id: int
    email: str
    request: str


_author: ContextVar[Author | None] = ContextVar("catalog_author", default=None)


@contextmanager
def audit_scope() -> Iterator[None]:
    """What is written within has the author that `set_author` names within, and none before."""
    token = _author.set(None)
    try:
        yield
    finally:
        _author.reset(token)


def set_author(author: Author) -> None:
    """Say who writes from now on in this context."""
    _author.set(author)


@event.listens_for(CatalogSession, "after_flush")
def _note(session: Session, _context: UOWTransaction) -> None:
    author = _author.get()
    if author is None:
        return
    rows = [
        row
        for action, items in (
            ("create", session.new),
            ("edit", session.dirty),
            ("delete", session.deleted),
        )
        for item in items
        if (row := _row(author, "delete" if is_soft_deleted(session, item) else action, item))
        is not None
    ]
    if rows:
        session.connection().execute(insert(AuditEntry), rows)
        session.info.setdefault(_TOLD, []).extend(rows)


@event.listens_for(CatalogSession, "after_commit")
def _tell(session: Session) -> None:
    for row in session.info.pop(_TOLD, ()):
        _log.info(
            "catalog changed",
            account=row["account_id"],
            company=row["company_id"],
            operation=f"{row['action']} {row['kind']}",
            id=row["ref"],
        )


@event.listens_for(CatalogSession, "after_rollback")
def _forget(session: Session) -> None:
    session.info.pop(_TOLD, None)


def _row(author: Author, action: str, item: object) -> dict[str, Any] | None:
    kind = _KINDS.get(type(item))
    if kind is None:
        return None
    state = inspect(item)
    told = [field for field in state.attrs if field.key not in _UNSAID and _is_told(item, field)]
    if action == "edit":
        told = [field for field in told if field.history.has_changes()]
        if not told:
            return None
    return {
        "company_id": author.company_id,
        "create_on": datetime.now(UTC),
        "account_id": author.account_id,
        "email": author.email,
        "request": author.request,
        "action": action,
        "kind": kind,
        "ref": int(state.identity[0]) if state.identity else item.id,  # type: ignore[attr-defined]
        "before": {} if action == "create" else {f.key: _told(f, before=True) for f in told},
        "after": {} if action == "delete" else {f.key: _told(f, before=False) for f in told},
    }


def _is_told(item: object, field: AttributeState) -> bool:
    """Columns, and ties that are loaded."""
    if field.key in _TIES:
        return field.key in inspect(item).dict
    return field.key in inspect(type(item)).column_attrs


def _told(field: AttributeState, *, before: bool) -> Any:
    if field.key in _SECRET:
        return _HIDDEN
    history = field.history
    if field.key in _TIES:
        side = history.deleted if before else history.added
        return _ids([*(history.unchanged or ()), *(side or ())])
    if before and history.deleted:
        return _plain(history.deleted[0])
    value = field.loaded_value
    return None if value is LoaderCallableStatus.NO_VALUE else _plain(value)


def _ids(records: Iterable[Any]) -> list[int]:
    return sorted(record.id for record in records)[:_MOST]


def _plain(value: Any) -> Any:
    """As JSON holds it, and short."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, datetime | date):
        return value.isoformat()
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
