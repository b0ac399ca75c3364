"""Deleted venues, beacons, geofences and campaigns: hidden at once, but kept by id and name.

Traces, statistics and `verify` still refer to them. `CatalogSession` does both parts, so that no
query and no writer can forget them:

- It selects only records that are not deleted, wherever a table stands in the statement. A query
  about the past includes deleted records (`with_deleted`).
- It marks the row of a deleted object instead of deleting it; for a venue it also marks the rows of
  the venue's records. Links to other records are deleted, and content is emptied, so that a marked
  row stays small.

A marked row blocks nothing: the triple of a deleted beacon is free again. Nothing can be added to a
deleted venue. Statements on a bare connection see all rows.
"""

from collections.abc import Sequence
from typing import Any, TypeVarTuple

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Connection,
    Delete,
    Select,
    Table,
    event,
    func,
    inspect,
    select,
)
from sqlalchemy import delete as delete_from
from sqlalchemy import update as update_table
from sqlalchemy.orm import ORMExecuteState, Session, UOWTransaction, with_loader_criteria

from catalog import outbox  # noqa: F401  # its listeners run before those of this module
from catalog.chunks import chunked
from catalog.errors import BulkWriteError, VenueDeletedError
from catalog.models import (
    Beacon,
    Campaign,
    Geofence,
    SoftDeletable,
    Venue,
    beacon_tag,
    campaign_beacon,
    campaign_geofence,
    campaign_tag,
)
from catalog.outbox import CatalogSession, has_changed, id_of

_CHUNK = 1000
_WITH_DELETED = "catalog_with_deleted"
_MARKED = "marked_deleted"
_LIVING_ONLY = with_loader_criteria(
    SoftDeletable, lambda model: model.deleted_at.is_(None), include_aliases=True
)
_IN_VENUES: tuple[Any, ...] = (Beacon, Geofence, Campaign)
_TABLES = {model.__table__ for model in (Venue, *_IN_VENUES)}
_LINKS: dict[type, tuple[tuple[Table, str], ...]] = {
    Venue: (),
    Beacon: ((beacon_tag, "beacon_id"), (campaign_beacon, "beacon_id")),
    Geofence: ((campaign_geofence, "geofence_id"),),
    Campaign: tuple((t, "campaign_id") for t in (campaign_beacon, campaign_geofence, campaign_tag)),
}
# Columns that may be large and that are not needed of a deleted record.
_EMPTIED: dict[type, dict[str, Any]] = {
    Venue: {"address": "", "image": None},
    Beacon: {},
    Geofence: {},
    Campaign: {
        "push": "",
        "title": "",
        "template": None,
        "url": None,
        "html": None,
        "nfcs": [],
        "qrcodes": [],
    },
}
Columns = TypeVarTuple("Columns")


def with_deleted(query: Select[*Columns]) -> Select[*Columns]:
    """Make the query find deleted records too."""
    return query.execution_options(**{_WITH_DELETED: True})


def is_soft_deleted(session: Session, item: object) -> bool:
    """Whether the current flush deletes the record, which is an update in SQL."""
    return any(item is marked for marked in session.info.get(_MARKED, ()))


@event.listens_for(CatalogSession, "do_orm_execute")
def _hide_deleted(state: ORMExecuteState) -> None:
    statement = state.statement
    if isinstance(statement, Delete) and statement.table in _TABLES:
        raise BulkWriteError(f"delete {statement.table} through the session's objects")
    inherits = state.is_column_load or state.is_relationship_load  # the criteria of its query
    wanted = state.execution_options.get(_WITH_DELETED, False)
    if isinstance(statement, Select | CompoundSelect) and not (inherits or wanted):
        state.statement = statement.options(_LIVING_ONLY)


@event.listens_for(CatalogSession, "before_flush")
def _mark_deleted(session: Session, _context: UOWTransaction, _instances: Any) -> None:
    deleted: dict[type, list[Any]] = {}
    for item in session.deleted:
        if isinstance(item, SoftDeletable):
            deleted.setdefault(type(item), []).append(item)
    session.info[_MARKED] = [item for items in deleted.values() for item in items]
    for model, items in deleted.items():
        for item in items:
            session.add(item)  # the flush would delete it otherwise
            for name, value in _marked(model).items():
                setattr(item, name, value)
        for ids in chunked(map(id_of, items), _CHUNK):
            _delete_links(session.connection(), model, _column(model, "id").in_(ids))
            if model is Venue:
                _mark_contents(session.connection(), ids)


@event.listens_for(CatalogSession, "before_flush")
def _refuse_new_in_deleted_venue(
    session: Session, _context: UOWTransaction, _instances: Any
) -> None:
    new = set(session.new)
    wanted = {_entered_venue(item, item in new) for item in (*new, *session.dirty)} - {None}
    for ids in chunked(wanted, _CHUNK):
        living = select(Venue.id).where(Venue.id.in_(ids), Venue.deleted_at.is_(None))
        # Waits for a deletion under way, as the check of the foreign key would.
        found = session.connection().scalars(living.with_for_update(read=True, key_share=True))
        if len(found.all()) < len(ids):
            raise VenueDeletedError("the venue was deleted meanwhile")


def _mark_contents(connection: Connection, venue_ids: Sequence[int]) -> None:
    for model in _IN_VENUES:
        inside = _column(model, "venue_id").in_(venue_ids)
        _delete_links(connection, model, inside)
        statement = update_table(model).where(inside, _column(model, "deleted_at").is_(None))
        connection.execute(statement.values(_marked(model)))


def _delete_links(connection: Connection, model: type, condition: ColumnElement[bool]) -> None:
    ids = select(_column(model, "id")).where(condition)
    for table, column in _LINKS[model]:
        connection.execute(delete_from(table).where(table.c[column].in_(ids)))


def _marked(model: type) -> dict[str, Any]:
    return {**_EMPTIED[model], "deleted_at": func.now()}


def _entered_venue(item: object, new: bool) -> int | None:
    """The id of the venue to which a record is added or moved, unless the venue is new as well."""
    if not isinstance(item, _IN_VENUES):
        return None
    if not new and not any(has_changed(item, name) for name in ("venue_id", "venue")):
        return None
    venue, number = item.__dict__.get("venue"), item.__dict__.get("venue_id")
    if venue is not None:
        number = (inspect(venue).identity or [None])[0]
    return None if number is None else int(number)


def _column(model: Any, name: str) -> Any:
    return getattr(model, name)
