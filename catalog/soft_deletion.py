"""Deleted venues, beacons, geofences and campaigns: hidden at once, and kept by id and name.

Traces, statistics and `verify` tell of what was deleted since. `CatalogSession` does both halves,
so that no query and no writer can forget them:

- what it selects are living records, wherever in the statement a table stands; a query that tells
  of the past asks for the others too (`with_deleted`);
- deleting an object marks its row, and those of all that stands in a venue. Their ties to other
  records go, and so does their content: what stays costs a name.

A deleted row holds no place: the triple of a beacon is free again, and nothing may come into a
deleted venue. Statements on a bare connection see everything.
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

from catalog.chunks import chunked
from catalog.models import (
    Beacon,
    Campaign,
    Geofence,
    Venue,
    beacon_tag,
    campaign_beacon,
    campaign_geofence,
    campaign_tag,
)
from catalog.models.base import Deletable
from catalog.outbox import CatalogSession, UnwatchedWriteError

_CHUNK = 1000
_WITH_DELETED = "catalog_with_deleted"
_MARKED = "marked_deleted"
_LIVING = with_loader_criteria(
    Deletable, lambda model: model.deleted_at.is_(None), include_aliases=True
)
_IN_VENUES: tuple[Any, ...] = (Beacon, Geofence, Campaign)
_TABLES = {model.__table__ for model in (Venue, *_IN_VENUES)}
_TIES: dict[type, tuple[tuple[Table, str], ...]] = {
    Venue: (),
    Beacon: ((beacon_tag, "beacon_id"), (campaign_beacon, "beacon_id")),
    Geofence: ((campaign_geofence, "geofence_id"),),
    Campaign: tuple((t, "campaign_id") for t in (campaign_beacon, campaign_geofence, campaign_tag)),
}
# What may be large, and nobody asks for again.
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


class VenueGoneError(Exception):
    """Something was to come into a venue that has just been deleted."""


def with_deleted(query: Select[*Columns]) -> Select[*Columns]:
    """The query, which also finds deleted records."""
    return query.execution_options(**{_WITH_DELETED: True})


def is_marked(session: Session, item: object) -> bool:
    """Whether the flush under way deletes the record, which to SQL is an edit."""
    return any(item is marked for marked in session.info.get(_MARKED, ()))


@event.listens_for(CatalogSession, "do_orm_execute")
def _see_the_living(state: ORMExecuteState) -> None:
    statement = state.statement
    if isinstance(statement, Delete) and statement.table in _TABLES:
        raise UnwatchedWriteError(f"delete {statement.table} through the session's objects")
    follows = state.is_column_load or state.is_relationship_load  # these inherit the criteria
    wanted = state.execution_options.get(_WITH_DELETED, False)
    if isinstance(statement, Select | CompoundSelect) and not (follows or wanted):
        state.statement = statement.options(_LIVING)


@event.listens_for(CatalogSession, "before_flush")
def _mark_instead(session: Session, _context: UOWTransaction, _instances: Any) -> None:
    doomed: dict[type, list[Any]] = {}
    for item in session.deleted:
        if isinstance(item, Deletable):
            doomed.setdefault(type(item), []).append(item)
    session.info[_MARKED] = [item for items in doomed.values() for item in items]
    for model, items in doomed.items():
        for item in items:
            session.add(item)  # the flush would delete it otherwise
            for name, value in _marked(model).items():
                setattr(item, name, value)
        for ids in chunked(map(_key, items), _CHUNK):
            _untie(session.connection(), model, _column(model, "id").in_(ids))
            if model is Venue:
                _mark_inside(session.connection(), ids)


@event.listens_for(CatalogSession, "before_flush")
def _keep_newcomers_out(session: Session, _context: UOWTransaction, _instances: Any) -> None:
    new = set(session.new)
    wanted = {_enters(item, item in new) for item in (*new, *session.dirty)} - {None}
    for ids in chunked(wanted, _CHUNK):
        living = select(Venue.id).where(Venue.id.in_(ids), Venue.deleted_at.is_(None))
        # Waits for a deletion under way, as the foreign key of the row does.
        found = session.connection().scalars(living.with_for_update(read=True, key_share=True))
        if len(found.all()) < len(ids):
            raise VenueGoneError("the venue was deleted meanwhile")


def _mark_inside(connection: Connection, venue_ids: Sequence[int]) -> None:
    for model in _IN_VENUES:
        inside = _column(model, "venue_id").in_(venue_ids)
        _untie(connection, model, inside)
        statement = update_table(model).where(inside, _column(model, "deleted_at").is_(None))
        connection.execute(statement.values(_marked(model)))


def _untie(connection: Connection, model: type, condition: ColumnElement[bool]) -> None:
    ids = select(_column(model, "id")).where(condition)
    for table, column in _TIES[model]:
        connection.execute(delete_from(table).where(table.c[column].in_(ids)))


def _marked(model: type) -> dict[str, Any]:
    return {**_EMPTIED[model], "deleted_at": func.now()}


def _enters(item: object, new: bool) -> int | None:
    """The id of the venue that a record comes into, unless that is new as well."""
    if not isinstance(item, _IN_VENUES):
        return None
    if not new and not any(_changed(item, name) for name in ("venue_id", "venue")):
        return None
    venue, number = item.__dict__.get("venue"), item.__dict__.get("venue_id")
    if venue is not None:
        number = (inspect(venue).identity or [None])[0]
    return None if number is None else int(number)


def _changed(item: object, name: str) -> bool:
    return bool(inspect(item).attrs[name].history.has_changes())


def _key(item: Any) -> int:
    # The attribute may be expired.
    return int(inspect(item).identity[0])


def _column(model: Any, name: str) -> Any:
    return getattr(model, name)
