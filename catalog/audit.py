"""Records who changed what, in the transaction that makes the change.

While an author is set, `CatalogSession` writes an entry for every record that changes, so that no
operation can forget it. Without an author (when a catalog file is loaded) it writes none. An entry
says of a secret only that it changed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from sqlalchemy import event, insert, inspect
from sqlalchemy.orm import AttributeState, LoaderCallableStatus, Session, UOWTransaction

from catalog.models import (
    Account,
    Application,
    AuditEntry,
    Beacon,
    Campaign,
    Company,
    Connector,
    Device,
    Geofence,
    ScanTag,
    SoftDeletable,
    Venue,
)
from catalog.session import CatalogSession, has_changed

_AUDITED = (Account, Application, Beacon, Campaign, Company, Connector, Device, Geofence, Venue)
AUDITED_KINDS = (*(model.__tablename__ for model in _AUDITED), "nfc", "qrcode")
_SECRETS = frozenset(("password_hash", "parameters", "secret", "api_key", "token_push"))
# Not recorded; expire_offset only says how expire_on is written.
_LEFT_OUT = frozenset(("id", "company_id", "create_on", "update_on", "deleted_at", "expire_offset"))
# Of a deleted person nothing stays but the number, which leads to nobody.
_PERSONAL = (Device,)
_UNNAMED = (Device, Account)
_LINKS = frozenset(("tags", "beacons", "geofencings", "scan_tags"))
_HIDDEN = "*****"
_MOST_CHARACTERS = 200
_MOST_LINKS = 100


@dataclass(frozen=True, kw_only=True)
class Author:
    """The account that makes a change, its company, and the id of the request."""

    company_id: int
    account_id: int
    email: str
    request: str


_author: ContextVar[Author | None] = ContextVar("catalog_author", default=None)


@contextmanager
def audit_scope() -> Iterator[None]:
    """Limit `set_author` to this block. There is no author until it is called."""
    token = _author.set(None)
    try:
        yield
    finally:
        _author.reset(token)


def set_author(author: Author) -> None:
    """Set the author of every later change in this context."""
    _author.set(author)


@event.listens_for(CatalogSession, "after_flush")
def _write_entries(session: Session, _context: UOWTransaction) -> None:
    author = _author.get()
    if author is None:
        return
    actions = {"create": session.new, "edit": session.dirty, "delete": session.deleted}
    made = [_row(author, action, item) for action, items in actions.items() for item in items]
    if rows := [row for row in made if row is not None]:
        session.connection().execute(insert(AuditEntry), rows)


def _row(author: Author, action: str, item: Any) -> dict[str, Any] | None:
    if not isinstance(item, (*_AUDITED, ScanTag)):
        return None
    kind = item.kind if isinstance(item, ScanTag) else item.__tablename__
    state: Any = inspect(item)
    fields = [f for f in state.attrs if f.key not in _LEFT_OUT and _is_loaded(item, f)]
    if isinstance(item, SoftDeletable) and has_changed(item, "deleted_at"):
        action = "restore" if item.deleted_at is None else "delete"
        fields = fields if action == "delete" else []
    if action == "delete" and isinstance(item, _PERSONAL):
        fields = []
    if action == "edit":
        fields = [field for field in fields if field.history.has_changes()]
        if not fields:
            return None
    return {
        "company_id": author.company_id,
        "create_on": datetime.now(UTC),
        "account_id": author.account_id,
        "email": author.email,
        "request": author.request,
        "action": action,
        "kind": kind,
        "ref": int(state.identity[0]) if state.identity else item.id,
        "name": "" if isinstance(item, _UNNAMED) else getattr(item, "name", ""),
        "before": {} if action == "create" else {f.key: _value(f, before=True) for f in fields},
        "after": {} if action == "delete" else {f.key: _value(f, before=False) for f in fields},
    }


def _is_loaded(item: object, field: AttributeState) -> bool:
    """Whether the field is a column, or a link whose records are loaded."""
    if field.key in _LINKS:
        return field.key in inspect(item).dict
    return field.key in inspect(type(item)).column_attrs


def _value(field: AttributeState, *, before: bool) -> Any:
    if field.key in _SECRETS:
        return _HIDDEN
    history = field.history
    if field.key in _LINKS:
        side = history.deleted if before else history.added
        records = [*(history.unchanged or ()), *(side or ())]
        return sorted(record.id for record in records)[:_MOST_LINKS]
    if before and history.deleted:
        return _plain(history.deleted[0])
    value = field.loaded_value
    return None if value is LoaderCallableStatus.NO_VALUE else _plain(value)


def _plain(value: Any) -> Any:
    """The value in a form that JSON can hold, shortened."""
    if value is None or isinstance(value, bool | int | float | list | dict):
        return value
    if isinstance(value, datetime | date):
        return value.isoformat()
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"
