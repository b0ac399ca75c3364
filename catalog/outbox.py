"""Records every change that the index must follow, in the transaction that makes the change.

Every flush of a `CatalogSession` fills the outbox, so that no writer forgets. Kinds and their refs:

    beacon_id   beacon id               this beacon, with the triple that it has now
    beacon      <uuid>:<major>:<minor>  a triple that a beacon has given up
    campaign    campaign id             the campaign
    targets     campaign id             the beacons that the campaign targets
    tagged      <venue id>:<tag id>     the beacons of the venue that carry the tag now
    venue       venue id                the venue's beacons and campaigns
    company     company id              the company's connector

A row is resolved to records when the outbox is drained, not when it is written: of two concurrent
transactions neither would see the other's changes.
"""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import event, insert, inspect
from sqlalchemy.orm import Session, UOWTransaction

from catalog.models import Beacon, Campaign, Connector, Outbox, Venue
from catalog.session import CatalogSession, has_changed, history_of

_TRIPLE = ("uuid", "major", "minor")
_OF_BEACON = (*_TRIPLE, "name", "active", "proximity", "venue_id", "venue", "tags", "deleted_at")
_OF_VENUE = ("name", "active", "time_zone", "company_id", "deleted_at")
_NOT_OF_CAMPAIGN = {"venue", "geofencings", "nfcs", "qrcodes", "beacons", "tags"}


@event.listens_for(CatalogSession, "after_flush")
def _enqueue_changes(session: Session, _context: UOWTransaction) -> None:
    items = (*session.new, *session.dirty, *session.deleted)
    rows = dict.fromkeys(row for item in items for row in _rows(item))
    if rows:
        values = [{"kind": kind, "ref": str(ref)} for kind, ref in rows]
        session.connection().execute(insert(Outbox), values)


def _rows(item: object) -> Iterator[tuple[str, Any]]:
    if isinstance(item, Beacon):
        if has_changed(item, *_OF_BEACON):
            yield "beacon_id", item.id
        if inspect(item).persistent and has_changed(item, *_TRIPLE):
            yield "beacon", ":".join(str(_before(item, name)) for name in _TRIPLE)
    elif isinstance(item, Campaign):
        yield from _rows_of_campaign(item)
    elif isinstance(item, Venue):
        if inspect(item).persistent and has_changed(item, *_OF_VENUE):
            yield "venue", item.id
    elif isinstance(item, Connector):
        yield "company", item.company_id


def _rows_of_campaign(item: Campaign) -> Iterator[tuple[str, Any]]:
    columns = [each.key for each in inspect(item).attrs if each.key not in _NOT_OF_CAMPAIGN]
    if has_changed(item, *columns):
        yield "campaign", item.id
    if has_changed(item, "deleted_at"):
        yield "targets", item.id
    for beacon in _added_and_removed(item, "beacons"):
        yield "beacon_id", beacon.id
    for tag in _added_and_removed(item, "tags"):
        yield "tagged", f"{item.venue_id}:{tag.id}"


def _before(item: object, name: str) -> Any:
    history = history_of(item, name)
    return [*history.deleted, *history.unchanged][0]


def _added_and_removed(item: object, name: str) -> list[Any]:
    history = history_of(item, name)
    return [*(history.added or ()), *(history.deleted or ())]
