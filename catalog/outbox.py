"""Records every change that the index must follow, in the transaction that makes the change.

`CatalogSession` fills the outbox at every flush, and refuses bulk statements on the tables of the
index, which would bypass it. Kinds and their refs:

    beacon      <uuid>:<major>:<minor>  whatever beacon now has this triple, or none
    beacon_id   beacon id               this beacon, whatever its triple is now
    campaign    campaign id             its record
    tagged      <venue id>:<tag id>     the beacons of the venue that carry the tag now
    venue       venue id                its beacons and campaigns
    company     company id              its connector

A row is resolved to records when the outbox is drained, not when it is written: another transaction
may commit in between, and neither would see the other's half. For the same reason a deletion locks
what it reads, so that nothing is added to it meanwhile.
"""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import UpdateBase, event, inspect
from sqlalchemy.orm import ORMExecuteState, Session, UOWTransaction

from catalog import outbox_rows
from catalog.errors import BulkWriteError
from catalog.models import (
    Beacon,
    Campaign,
    Company,
    Connector,
    Tag,
    Venue,
    beacon_tag,
    campaign_beacon,
    campaign_tag,
)
from catalog.outbox_rows import OutboxRow
from catalog.session import CatalogSession, has_changed, history_of, id_of

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
    for model, note in outbox_rows.DELETIONS.items():
        if ids := deleted.get(model):
            note(session.connection(), ids)
    renumbered = [item.id for item in session.dirty if _changes_triple(item)]
    if renumbered:
        outbox_rows.note_triples(session.connection(), renumbered)
    moved_campaigns = [item.id for item in session.dirty if _changes_venue(item)]
    if moved_campaigns:
        outbox_rows.note_tagged(session.connection(), moved_campaigns)


@event.listens_for(CatalogSession, "after_flush")
def _enqueue_changes(session: Session, _context: UOWTransaction) -> None:
    rows = dict.fromkeys(
        row for items in (session.new, session.dirty) for item in items for row in _rows(item)
    )
    if rows:
        outbox_rows.insert_rows(session.connection(), rows)
    moved_campaigns = [item.id for item in session.dirty if _changes_venue(item)]
    if moved_campaigns:
        outbox_rows.note_tagged(session.connection(), moved_campaigns)


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
