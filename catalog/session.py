"""The session in which the catalog is read and written: its rules hold for every writer.

It hides deleted records, ends the sessions of accounts that change, and fills the outbox with every
change that the index must follow. While an author is set, it also writes an entry of the audit for
every record that changes, so that no operation can forget it; without one (when a catalog file is
loaded) it writes none. None of this notices a bulk statement: write the catalog's records as
objects.

A deleted venue, place or campaign keeps its row with its links, because traces and
statistics refer to it. The session marks the row instead of deleting it; for a venue it also marks
the venue's records. Queries select only records that are not deleted, wherever a table stands in
the statement, unless they ask for all (`with_deleted`). A marked row blocks nothing: the triple of
a deleted beacon and the value of a deleted tag are free again. Whoever adds records to a venue
locks it, so that it is not deleted meanwhile. Statements on a bare connection see all rows.

Kinds of outbox rows, and their refs:

    beacon, geofence, scan_tag  id  the place
    application  id                 the application
    field        field of the index an entry whose record has another key now, or was deleted
    campaign     campaign id        the campaign
    targets      campaign id        the places that the campaign targets
    venue        venue id           the venue's places and campaigns
    company      company id         the company's connector, rules and circles
    owner        venue id           those of the venue's company

A row is resolved to records when the outbox is drained, not when it is written: of two concurrent
transactions neither would see the other's changes.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeVarTuple

from sqlalchemy import CompoundSelect, Select, delete, event, insert, inspect, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import (
    AttributeState,
    ORMExecuteState,
    UOWTransaction,
    with_loader_criteria,
)
from sqlalchemy.orm import Session as OrmSession
from sqlalchemy.orm.attributes import History

from catalog.index.entries import application_field, beacon_field, geofence_field, tag_field
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
    Outbox,
    ScanTag,
    Session,
    SoftDeletable,
    Venue,
)

# A key of the SQLAlchemy session's `info`: the hash of the token whose session outlives a new
# password.
KEPT_SESSION = "kept_session"
# How long a deleted record can be brought back.
RESTORABLE = timedelta(days=30)
IN_VENUES: tuple[Any, ...] = (Beacon, Geofence, ScanTag, Campaign)
_WITH_DELETED = "catalog_with_deleted"
_LIVING_ONLY = with_loader_criteria(
    SoftDeletable, lambda model: model.deleted_at.is_(None), include_aliases=True
)
Columns = TypeVarTuple("Columns")


class CatalogSession(OrmSession):
    """The class of every session of `catalog.database.Database`."""


def history_of(record: object, name: str) -> History:
    """The change of an attribute that a flush would write."""
    return inspect(record).attrs[name].history  # type: ignore[no-any-return]  # inspect is untyped


def has_changed(record: object, *names: str) -> bool:
    """Whether a flush would change one of the attributes."""
    return any(history_of(record, name).has_changes() for name in names)


def with_deleted(query: Select[*Columns]) -> Select[*Columns]:
    """Make the query find deleted records too."""
    return query.execution_options(**{_WITH_DELETED: True})


async def undelete(session: AsyncSession, record: Any) -> None:
    """Bring back a deleted record; a venue with the records that were deleted with it."""
    deleted_at, record.deleted_at = record.deleted_at, None
    if isinstance(record, Venue):
        for model in IN_VENUES:
            inside = (model.venue_id == record.id, model.deleted_at == deleted_at)
            for each in await session.scalars(with_deleted(select(model).where(*inside))):
                each.deleted_at = None


@event.listens_for(CatalogSession, "do_orm_execute")
def _hide_deleted(state: ORMExecuteState) -> None:
    inherits = state.is_column_load or state.is_relationship_load  # the criteria of its query
    wanted = state.execution_options.get(_WITH_DELETED, False)
    if isinstance(state.statement, Select | CompoundSelect) and not (inherits or wanted):
        state.statement = state.statement.options(_LIVING_ONLY)


@event.listens_for(CatalogSession, "before_flush")
def _mark_deleted(session: OrmSession, _context: UOWTransaction, _instances: Any) -> None:
    now = datetime.now(UTC)
    marked = [item for item in session.deleted if isinstance(item, SoftDeletable)]
    for item in marked:
        session.add(item)  # the flush would delete it otherwise
        item.deleted_at = now
    if not marked:
        return
    venues = [item.id for item in marked if isinstance(item, Venue)]
    connection, gone = session.connection(), list[str]()
    # A transaction that adds records to the venue locks it too: the deletion waits for it.
    connection.execute(select(Venue.id).where(Venue.id.in_(venues)).with_for_update())
    for model in IN_VENUES:
        named = model.id.in_([item.id for item in marked if isinstance(item, model)])
        found = (or_(named, model.venue_id.in_(venues)), model.deleted_at.is_(None))
        if model in _KEYS:  # read now: another transaction may have changed them
            field_of, names = _KEYS[model]
            keys = select(*(getattr(model, name) for name in names)).where(*found).with_for_update()
            gone += [field_of(*key) for key in connection.execute(keys)]
        connection.execute(update(model).where(*found).values(deleted_at=now))
    if gone:
        connection.execute(insert(Outbox), [{"kind": "field", "ref": field} for field in gone])


@event.listens_for(CatalogSession, "before_flush")
def _end_sessions(session: OrmSession, _context: UOWTransaction, _instances: Any) -> None:
    """End the sessions of an account whose password or activity changes, or its company's."""
    kept = Session.token_hash != session.info.get(KEPT_SESSION, "")
    for item in session.dirty:
        if isinstance(item, Account) and has_changed(item, "password_hash", "active"):
            session.connection().execute(delete(Session).where(Session.account_id == item.id, kept))
        elif isinstance(item, Company) and has_changed(item, "active"):
            accounts = select(Account.id).where(Account.company_id == item.id)
            session.connection().execute(delete(Session).where(Session.account_id.in_(accounts)))


# The records whose field in the index may change: the field, and the columns that it names.
_KEYS: dict[Any, tuple[Callable[..., str], tuple[str, ...]]] = {
    Beacon: (beacon_field, ("uuid", "major", "minor")),
    Geofence: (geofence_field, ("id",)),
    ScanTag: (tag_field, ("company_id", "kind", "value")),
    Application: (application_field, ("api_key",)),
}
_TARGETS = {"beacon": "beacons", "geofence": "geofencings", "scan_tag": "scan_tags"}


@event.listens_for(CatalogSession, "after_flush")
def _fill_outbox(session: OrmSession, _context: UOWTransaction) -> None:
    edited = [item for item in session.dirty if session.is_modified(item)]
    items = (*session.new, *edited, *session.deleted)
    rows = dict.fromkeys(row for item in items for row in _rows(item))
    if rows:
        # Fields that are given up come first: another record of the flush may have taken one.
        values = [{"kind": kind, "ref": str(ref)} for kind, ref in rows]
        values.sort(key=lambda row: row["kind"] != "field")
        session.connection().execute(insert(Outbox), values)


def _rows(item: Any) -> Iterator[tuple[str, Any]]:
    """The outbox rows of a record that was written."""
    match item:
        case Company():
            yield "company", item.id
        case Connector():
            yield "company", item.company_id
        case Venue():
            yield "venue", item.id
            yield "company", item.company_id
        case Beacon() | Geofence() | ScanTag() | Application():
            yield item.__tablename__, item.id
            if isinstance(item, Geofence):
                yield "owner", item.venue_id
        case Campaign():
            yield from _rows_of_campaign(item)
    if type(item) in _KEYS and inspect(item).persistent:
        field_of, columns = _KEYS[type(item)]
        if isinstance(item, Application) or has_changed(item, *columns):
            yield "field", field_of(*(_before(item, name) for name in columns))


def _rows_of_campaign(item: Campaign) -> Iterator[tuple[str, Any]]:
    yield "campaign", item.id
    if has_changed(item, "deleted_at"):
        yield "targets", item.id
    if has_changed(item, "on", "deleted_at") and {*history_of(item, "on").sum()} != {"detection"}:
        yield "owner", item.venue_id
    for kind, name in _TARGETS.items():
        history = history_of(item, name)
        for place in (*(history.added or ()), *(history.deleted or ())):
            yield kind, place.id
    if has_changed(item, "tags"):
        yield "venue", item.venue_id


def _before(item: object, name: str) -> Any:
    history = history_of(item, name)
    return [*history.deleted, *history.unchanged][0]


# The audit: who changed what.


_AUDITED = (Account, Application, Beacon, Campaign, Company, Connector, Device, Geofence, Venue)
AUDITED_KINDS = (*(model.__tablename__ for model in _AUDITED), "nfc", "qrcode")
_SECRETS = frozenset(("password_hash", "parameters", "secret", "api_key", "token_push"))
_LEFT_OUT = frozenset(("id", "company_id", "create_on", "update_on", "deleted_at"))
_LINKS = frozenset(("tags", "beacons", "geofencings", "scan_tags"))
_HIDDEN = "*****"
_MOST_CHARACTERS = 200
_MOST_LINKS = 100


class Author(NamedTuple):
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
def _write_entries(session: OrmSession, _context: UOWTransaction) -> None:
    author = _author.get()
    if author is None:
        return
    actions = {"create": session.new, "edit": session.dirty, "delete": session.deleted}
    made = [_entry_of(author, action, item) for action, items in actions.items() for item in items]
    if entries := [entry for entry in made if entry is not None]:
        entries.sort(key=lambda entry: entry["ref"])  # the session's sets have no order
        session.connection().execute(insert(AuditEntry), entries)


def _entry_of(author: Author, action: str, item: Any) -> dict[str, Any] | None:
    if not isinstance(item, (*_AUDITED, ScanTag)):
        return None
    kind = item.kind if isinstance(item, ScanTag) else item.__tablename__
    state: Any = inspect(item)
    # Columns, and links whose records are loaded.
    names = [*state.mapper.column_attrs.keys(), *sorted(_LINKS & state.dict.keys())]
    fields = [state.attrs[name] for name in names if name not in _LEFT_OUT]
    if isinstance(item, SoftDeletable) and has_changed(item, "deleted_at"):
        action = "restore" if item.deleted_at is None else "delete"
        fields = fields if action == "delete" else []
    if action == "delete" and isinstance(item, Device):
        fields = []  # of a deleted person nothing stays but the number, which leads to nobody
    if action == "edit":
        fields = [field for field in fields if field.history.has_changes()]
        if not fields:
            return None
    return {
        **author._asdict(),
        "create_on": datetime.now(UTC),
        "action": action,
        "kind": kind,
        "ref": int(state.identity[0]) if state.identity else item.id,
        "name": "" if isinstance(item, Device | Account) else getattr(item, "name", ""),
        "before": {} if action == "create" else {f.key: _value(f, before=True) for f in fields},
        "after": {} if action == "delete" else {f.key: _value(f, before=False) for f in fields},
    }


def _value(field: AttributeState, *, before: bool) -> Any:
    """The value before or after the change, in a form that JSON can hold, shortened."""
    if field.key in _SECRETS:
        return _HIDDEN
    history = field.history
    changed = history.deleted if before else history.added
    values = [*(changed or ()), *(history.unchanged or ())]
    if field.key in _LINKS:
        return sorted(record.id for record in values)[:_MOST_LINKS]
    value = values[0] if values else None
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str) and len(value) > _MOST_CHARACTERS:
        return f"{value[: _MOST_CHARACTERS - 1]}…"
    return value
