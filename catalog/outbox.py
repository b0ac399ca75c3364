"""Records every change that the index must follow, in the transaction that makes the change.

`CatalogSession` is the session in which the catalog is written. Modules listen to it, so that no
writer forgets: this one enqueues changes for the index, catalog.access ends sessions,
catalog.soft_deletion hides deleted records, catalog.audit records who changed what.

The session fills the outbox at every flush, and refuses bulk statements on the tables of the
index, which would bypass it. Kinds and their refs:

    beacon      <uuid>:<major>:<minor>  the beacon that has this triple now, or none
    beacon_id   beacon id               this beacon, whatever its triple is now
    campaign    campaign id             the campaign
    tagged      <venue id>:<tag id>     the beacons of the venue that carry the tag now
    venue       venue id                the venue's beacons and campaigns
    company     company id              the company's connector

A row is resolved to records when the outbox is drained, not when it is written. Between two
concurrent transactions neither would see the other's changes. For the same reason a deletion locks
the records that it reads, so that nothing is added to them meanwhile.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    SelectBase,
    String,
    UpdateBase,
    cast,
    event,
    insert,
    inspect,
    literal,
    select,
)
from sqlalchemy.orm import ORMExecuteState, Session, UOWTransaction
from sqlalchemy.orm.attributes import History

from catalog.chunks import chunked
from catalog.errors import BulkWriteError
from catalog.models import (
    Beacon,
    Campaign,
    Company,
    Connector,
    Outbox,
    Tag,
    Venue,
    beacon_tag,
    campaign_beacon,
    campaign_tag,
)


class CatalogSession(Session):
    """The class of every session of `catalog.database.Database`."""


def id_of(record: Any) -> int:
    """The id of a stored record, without SQL, even if its attributes are expired."""
    return int(inspect(record).identity[0])


def history_of(record: object, name: str) -> History:
    """The change of an attribute that a flush would write."""
    return inspect(record).attrs[name].history  # type: ignore[no-any-return]  # inspect is untyped


def has_changed(record: object, *names: str) -> bool:
    """Whether a flush would change one of the attributes."""
    return any(history_of(record, name).has_changes() for name in names)


_CHUNK = 1000
_TRIPLE = ("uuid", "major", "minor")
_OF_BEACON = (*_TRIPLE, "name", "active", "proximity", "venue_id", "venue", "tags")
_OF_VENUE = ("name", "active", "time_zone", "company_id")
_NOT_OF_CAMPAIGN = {"geofencings", "nfcs", "qrcodes", "beacons", "tags"}
_WATCHED = {
    *(model.__table__ for model in (Company, Venue, Tag, Beacon, Campaign, Connector)),
    beacon_tag,
    campaign_beacon,
    campaign_tag,
}


class OutboxRow(NamedTuple):
    """A row of the outbox; the module lists the kinds."""

    kind: str
    ref: str


@event.listens_for(CatalogSession, "do_orm_execute")
def _refuse_bulk_writes(state: ORMExecuteState) -> None:
    statement = state.statement
    if isinstance(statement, UpdateBase) and getattr(statement, "table", None) in _WATCHED:
        raise BulkWriteError(
            f"write {statement.table} through the session's objects: the index would not notice"
        )


@event.listens_for(CatalogSession, "before_flush")
def _enqueue_removals(session: Session, _context: UOWTransaction, _instances: Any) -> None:
    deleted: dict[type, list[int]] = {}
    for item in session.deleted:
        deleted.setdefault(type(item), []).append(id_of(item))
    for model, enqueue in _DELETIONS.items():
        if ids := deleted.get(model):
            enqueue(session.connection(), ids)
    renumbered = [item.id for item in session.dirty if _changes_triple(item)]
    if renumbered:
        _insert_triples_of(session.connection(), renumbered)
    moved_campaigns = [item.id for item in session.dirty if _changes_venue(item)]
    if moved_campaigns:
        _insert_tagged(session.connection(), moved_campaigns)


@event.listens_for(CatalogSession, "after_flush")
def _enqueue_changes(session: Session, _context: UOWTransaction) -> None:
    rows = dict.fromkeys(
        row for items in (session.new, session.dirty) for item in items for row in _rows(item)
    )
    if rows:
        _insert_rows(session.connection(), rows)
    moved_campaigns = [item.id for item in session.dirty if _changes_venue(item)]
    if moved_campaigns:
        _insert_tagged(session.connection(), moved_campaigns)


def _rows(item: object) -> Iterator[OutboxRow]:
    if isinstance(item, Beacon):
        if has_changed(item, *_OF_BEACON):
            yield OutboxRow("beacon_id", str(item.id))
    elif isinstance(item, Campaign):
        yield from _rows_of_campaign(item)
    elif isinstance(item, Venue):
        if inspect(item).persistent and has_changed(item, *_OF_VENUE):
            yield OutboxRow("venue", str(item.id))
    elif isinstance(item, Connector):
        for company_id in {item.company_id, *history_of(item, "company_id").deleted}:
            yield OutboxRow("company", str(company_id))


def _rows_of_campaign(campaign: Campaign) -> Iterator[OutboxRow]:
    columns = [key for key in inspect(campaign).attrs.keys() if key not in _NOT_OF_CAMPAIGN]  # noqa: SIM118
    if has_changed(campaign, *columns):
        yield OutboxRow("campaign", str(campaign.id))
    for beacon in _added_and_removed(campaign, "beacons"):
        yield OutboxRow("beacon_id", str(beacon.id))
    for tag in _added_and_removed(campaign, "tags"):
        yield OutboxRow("tagged", f"{campaign.venue_id}:{tag.id}")


def _changes_triple(item: object) -> bool:
    return isinstance(item, Beacon) and has_changed(item, *_TRIPLE)


def _changes_venue(item: object) -> bool:
    return isinstance(item, Campaign) and has_changed(item, "venue_id", "venue")


def _added_and_removed(item: object, name: str) -> list[Any]:
    history = history_of(item, name)
    return [*(history.added or ()), *(history.deleted or ())]


def _insert_rows(connection: Connection, rows: Iterable[OutboxRow]) -> None:
    """Insert rows whose refs are known."""
    for chunk in chunked(rows, _CHUNK):
        connection.execute(insert(Outbox), [row._asdict() for row in chunk])


def _insert_triples_of(connection: Connection, beacon_ids: Sequence[int]) -> None:
    """Insert rows for the triples that SQL has for beacons now; a session may not know them."""
    for ids in chunked(beacon_ids, _CHUNK):
        _insert_triples(connection, Beacon.id.in_(ids))


def _insert_tagged(connection: Connection, campaign_ids: Sequence[int]) -> None:
    """Insert a row for each tag of the campaigns, at the venue that SQL has for them now."""
    for ids in chunked(campaign_ids, _CHUNK):
        ref = _text(Campaign.venue_id) + ":" + _text(campaign_tag.c.tag_id)
        tied = select(literal("tagged"), ref).join_from(campaign_tag, Campaign)
        _insert_from(connection, tied.where(Campaign.id.in_(ids)))


def _text(column: Any) -> ColumnElement[str]:
    return cast(column, String)


def _insert_from(connection: Connection, rows: SelectBase) -> None:
    connection.execute(insert(Outbox).from_select(["kind", "ref"], rows))


def _insert_triples(connection: Connection, condition: ColumnElement[bool]) -> None:
    triple = Beacon.uuid + ":" + _text(Beacon.major) + ":" + _text(Beacon.minor)
    rows = select(literal("beacon"), triple).where(condition, Beacon.deleted_at.is_(None))
    _insert_from(connection, rows.with_for_update())


def _lock(connection: Connection, key: Any, *conditions: ColumnElement[bool]) -> list[int]:
    return list(connection.scalars(select(key).where(*conditions).with_for_update()))


def _delete_venues(connection: Connection, venue_ids: Sequence[int]) -> None:
    for ids in chunked(venue_ids, _CHUNK):
        _lock(connection, Venue.id, Venue.id.in_(ids))
        _insert_triples(connection, Beacon.venue_id.in_(ids))
        living = (Campaign.venue_id.in_(ids), Campaign.deleted_at.is_(None))
        _delete_campaigns(connection, _lock(connection, Campaign.id, *living))


def _delete_campaigns(connection: Connection, campaign_ids: Sequence[int]) -> None:
    for ids in chunked(campaign_ids, _CHUNK):
        _lock(connection, Campaign.id, Campaign.id.in_(ids))
        _insert_rows(connection, (OutboxRow("campaign", str(number)) for number in ids))
        targets = select(literal("beacon_id"), _text(campaign_beacon.c.beacon_id))
        _insert_from(connection, targets.where(campaign_beacon.c.campaign_id.in_(ids)))
        _insert_tagged(connection, ids)


def _delete_connectors(connection: Connection, connector_ids: Sequence[int]) -> None:
    owners = select(literal("company"), _text(Connector.company_id))
    for ids in chunked(connector_ids, _CHUNK):
        _insert_from(connection, owners.where(Connector.id.in_(ids)))


# Inserts the outbox rows of a table's records, and of those deleted with them, before the deletion.
# Companies and tags are never deleted.
_DELETIONS: dict[type, Callable[[Connection, Sequence[int]], None]] = {
    Venue: _delete_venues,
    Campaign: _delete_campaigns,
    Beacon: _insert_triples_of,
    Connector: _delete_connectors,
}
