"""Records every change that the index must follow, in the transaction that makes the change.

Every flush of a `CatalogSession` fills the outbox, so that no writer forgets. Kinds and their refs:

    beacon_id   beacon id               this beacon, with the triple that it has now
    beacon      <uuid>:<major>:<minor>  a triple that a beacon has given up
    geofence    geofence id             the geofence
    geofences   venue id                the circles of the venue's company
    scan_tag_id tag id                  this NFC tag or QR code, with the value that it has now
    scan_tag    field of the index      the entry of a value that a tag has given up
    campaign    campaign id             the campaign
    targets     campaign id             the places that the campaign targets
    tagged      <venue id>:<tag id>     the places of the venue that carry the tag now
    venue       venue id                the venue's places and campaigns
    company     company id              the company's connector
    rules       company id              the company's rules
    visits      venue id                the rules of the venue's company
    app_id      application id          the application
    app         field of the index      the entry of the key that an application had before

A row is resolved to records when the outbox is drained, not when it is written: of two concurrent
transactions neither would see the other's changes.
"""

from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import event, insert, inspect
from sqlalchemy.orm import Session, UOWTransaction

from catalog.index.entries import application_field, tag_field
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
_TARGETS = {"beacon_id": "beacons", "geofence": "geofencings", "scan_tag_id": "scan_tags"}
_NOT_OF_CAMPAIGN = {"venue", "geofencings", "scan_tags", "beacons", "tags"}


@event.listens_for(CatalogSession, "after_flush")
def _enqueue_changes(session: Session, _context: UOWTransaction) -> None:
    items = (*session.new, *session.dirty, *session.deleted)
    rows = dict.fromkeys(row for item in items for row in _rows(item))
    if rows:
        values = [{"kind": kind, "ref": str(ref)} for kind, ref in rows]
        session.connection().execute(insert(Outbox), values)


def _rows(item: object) -> Iterator[tuple[str, Any]]:
    of_type = _ROWS.get(type(item))
    return iter(()) if of_type is None else of_type(item)


def _rows_of_beacon(item: Beacon) -> Iterator[tuple[str, Any]]:
    if has_changed(item, *_TRIPLE, "proximity", *_OF_PLACE):
        yield "beacon_id", item.id
    if _gives_up(item, *_TRIPLE):
        yield "beacon", ":".join(str(_before(item, name)) for name in _TRIPLE)


def _rows_of_geofence(item: Geofence) -> Iterator[tuple[str, Any]]:
    if has_changed(item, *_CIRCLE, *_OF_PLACE):
        yield "geofence", item.id
    if has_changed(item, *_CIRCLE):
        yield "geofences", item.venue_id


def _rows_of_scan_tag(item: ScanTag) -> Iterator[tuple[str, Any]]:
    if has_changed(item, *_VALUE, *_OF_PLACE):
        yield "scan_tag_id", item.id
    if _gives_up(item, *_VALUE):
        yield "scan_tag", tag_field(*(_before(item, name) for name in _VALUE))


def _rows_of_venue(item: Venue) -> Iterator[tuple[str, Any]]:
    if _gives_up(item, *_OF_VENUE):
        yield "venue", item.id
        yield "geofences", item.id
    if has_changed(item, "deleted_at"):
        yield "visits", item.id


def _rows_of_application(item: Application) -> Iterator[tuple[str, Any]]:
    yield "app_id", item.id
    if inspect(item).persistent:  # edited or deleted
        yield "app", application_field(_before(item, "api_key"))


def _rows_of_company(item: Company) -> Iterator[tuple[str, Any]]:
    if has_changed(item, *_OF_COMPANY):
        yield "rules", item.id


def _rows_of_connector(item: Connector) -> Iterator[tuple[str, Any]]:
    yield "company", item.company_id


def _rows_of_campaign(item: Campaign) -> Iterator[tuple[str, Any]]:
    columns = [each.key for each in inspect(item).attrs if each.key not in _NOT_OF_CAMPAIGN]
    if has_changed(item, *columns):
        yield "campaign", item.id
    if has_changed(item, "deleted_at"):
        yield "targets", item.id
    if has_changed(item, "on", "deleted_at") and {*history_of(item, "on").sum()} != {"detection"}:
        yield "visits", item.venue_id
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
