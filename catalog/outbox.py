"""Records every change that the index must follow, in the transaction that makes the change.

Every flush of a `CatalogSession` fills the outbox, so that no writer forgets. Kinds and their refs:

    beacon, geofence, scan_tag  id  the place
    application  id                 the application
    field        field of the index an entry whose place or application has another key now
    campaign     campaign id        the campaign
    targets      campaign id        the places that the campaign targets
    tagged       <venue id>:<tag>   the places of the venue that carry the tag now
    venue        venue id           the venue's places and campaigns
    company      company id         the company's connector, rules and circles
    owner        venue id           those of the venue's company

A row is resolved to records when the outbox is drained, not when it is written: of two concurrent
transactions neither would see the other's changes.
"""

from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import event, insert, inspect
from sqlalchemy.orm import Session, UOWTransaction

from catalog.index.entries import application_field, beacon_field, tag_field
from catalog.models import (
    Application,
    Beacon,
    Campaign,
    Company,
    Connector,
    Geofence,
    Outbox,
    ScanTag,
    Venue,
)
from catalog.session import CatalogSession, has_changed, history_of

_TRIPLE = ("uuid", "major", "minor")
_OF_PLACE = ("name", "active", "venue_id", "venue", "tags", "deleted_at")
_CIRCLE = ("latitude", "longitude", "radius", "deleted_at")
_VALUE = ("company_id", "kind", "value")
_OF_VENUE = ("name", "active", "time_zone", "visit_silence", "company_id", "deleted_at")
_OF_COMPANY = ("time_zone", "caps", "quiet_hours", "presence", "visit_silence")
_TARGETS = {"beacon": "beacons", "geofence": "geofencings", "scan_tag": "scan_tags"}
_NOT_OF_CAMPAIGN = {"venue", "geofencings", "scan_tags", "beacons", "tags"}


@event.listens_for(CatalogSession, "after_flush")
def _enqueue_changes(session: Session, _context: UOWTransaction) -> None:
    items = (*session.new, *session.dirty, *session.deleted)
    rows = dict.fromkeys(row for item in items for row in _rows(item))
    if rows:
        # Fields that are given up come first: another record of the flush may have taken one.
        values = [{"kind": kind, "ref": str(ref)} for kind, ref in rows]
        values.sort(key=lambda row: row["kind"] != "field")
        session.connection().execute(insert(Outbox), values)


def _rows(item: object) -> Iterator[tuple[str, Any]]:
    of_type = _ROWS.get(type(item))
    return iter(()) if of_type is None else of_type(item)


def _rows_of_beacon(item: Beacon) -> Iterator[tuple[str, Any]]:
    if has_changed(item, *_TRIPLE, "proximity", *_OF_PLACE):
        yield "beacon", item.id
    if _gives_up(item, *_TRIPLE):
        yield "field", beacon_field(*(_before(item, name) for name in _TRIPLE))


def _rows_of_geofence(item: Geofence) -> Iterator[tuple[str, Any]]:
    if has_changed(item, *_CIRCLE, *_OF_PLACE):
        yield "geofence", item.id
    if has_changed(item, *_CIRCLE):
        yield "owner", item.venue_id


def _rows_of_scan_tag(item: ScanTag) -> Iterator[tuple[str, Any]]:
    if has_changed(item, *_VALUE, *_OF_PLACE):
        yield "scan_tag", item.id
    if _gives_up(item, *_VALUE):
        yield "field", tag_field(*(_before(item, name) for name in _VALUE))


def _rows_of_venue(item: Venue) -> Iterator[tuple[str, Any]]:
    if _gives_up(item, *_OF_VENUE):
        yield "venue", item.id
        yield "owner", item.id


def _rows_of_application(item: Application) -> Iterator[tuple[str, Any]]:
    yield "application", item.id
    if inspect(item).persistent:  # edited or deleted
        yield "field", application_field(_before(item, "api_key"))


def _rows_of_company(item: Company) -> Iterator[tuple[str, Any]]:
    if has_changed(item, *_OF_COMPANY):
        yield "company", item.id


def _rows_of_connector(item: Connector) -> Iterator[tuple[str, Any]]:
    yield "company", item.company_id


def _rows_of_campaign(item: Campaign) -> Iterator[tuple[str, Any]]:
    columns = [each.key for each in inspect(item).attrs if each.key not in _NOT_OF_CAMPAIGN]
    if has_changed(item, *columns):
        yield "campaign", item.id
    if has_changed(item, "deleted_at"):
        yield "targets", item.id
    if has_changed(item, "on", "deleted_at") and {*history_of(item, "on").sum()} != {"detection"}:
        yield "owner", item.venue_id
    for kind, name in _TARGETS.items():
        for place in _added_and_removed(item, name):
            yield kind, place.id
    for tag in _added_and_removed(item, "tags"):
        yield "tagged", f"{item.venue_id}:{tag.id}"


def _gives_up(item: object, *names: str) -> bool:
    return bool(inspect(item).persistent) and has_changed(item, *names)


_ROWS: dict[type, Callable[[Any], Iterator[tuple[str, Any]]]] = {
    Application: _rows_of_application,
    Beacon: _rows_of_beacon,
    Campaign: _rows_of_campaign,
    Company: _rows_of_company,
    Connector: _rows_of_connector,
    Geofence: _rows_of_geofence,
    ScanTag: _rows_of_scan_tag,
    Venue: _rows_of_venue,
}


def _before(item: object, name: str) -> Any:
    history = history_of(item, name)
    return [*history.deleted, *history.unchanged][0]


def _added_and_removed(item: object, name: str) -> list[Any]:
    history = history_of(item, name)
    return [*(history.added or ()), *(history.deleted or ())]
