"""What the index has yet to learn, written in the transaction that changes it.

`CatalogSession` fills the outbox for every unit-of-work write, so that no writer can forget, and
refuses bulk statements on the tables concerned, which would pass it by. Kinds and their refs:

    beacon      <uuid>:<major>:<minor>  whatever beacon now has this triple, or none
    beacon_id   beacon id               this beacon, whatever its triple is now
    campaign    campaign id             its record
    tagged      <venue id>:<tag id>     the beacons of the venue that carry the tag now
    venue       venue id                its beacons and campaigns
    company     company id              its connector

What a row means is looked up when the outbox is drained, not when it is written: another
transaction may commit in between, and neither would see the other's half. For the same reason
what a deletion takes along is read under a lock that keeps newcomers out.
"""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import UpdateBase, event, inspect
from sqlalchemy.orm import ORMExecuteState, Session, UOWTransaction
from sqlalchemy.orm.attributes import History

from catalog import outbox_rows
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
from catalog.outbox_rows import Row

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


class UnwatchedWriteError(Exception):
    """A bulk statement would change what the index holds without the outbox knowing."""


class CatalogSession(Session):
    """A session whose writes reach the index; see the module."""


@event.listens_for(CatalogSession, "do_orm_execute")
def _refuse_bulk_writes(state: ORMExecuteState) -> None:
    statement = state.statement
    if isinstance(statement, UpdateBase) and getattr(statement, "table", None) in _WATCHED:
        raise UnwatchedWriteError(
            f"write {statement.table} through the session's objects: the index would not notice"
        )


@event.listens_for(CatalogSession, "before_flush")
def _note_what_goes(session: Session, _context: UOWTransaction, _instances: Any) -> None:
    deleted: dict[type, list[int]] = {}
    for item in session.deleted:
        deleted.setdefault(type(item), []).append(_key(item))
    for model, note in outbox_rows.DELETIONS.items():
        if ids := deleted.get(model):
            note(session.connection(), ids)
    moved = [item.id for item in session.dirty if _loses_its_triple(item)]
    if moved:
        outbox_rows.note_triples(session.connection(), moved)
    rehoused = [item.id for item in session.dirty if _changes_venue(item)]
    if rehoused:
        outbox_rows.note_tagged(session.connection(), rehoused)


@event.listens_for(CatalogSession, "after_flush")
def _note_what_stays(session: Session, _context: UOWTransaction) -> None:
    rows = dict.fromkeys(
        row for items in (session.new, session.dirty) for item in items for row in _rows(item)
    )
    if rows:
        outbox_rows.insert_rows(session.connection(), rows)
    rehoused = [item.id for item in session.dirty if _changes_venue(item)]
    if rehoused:
        outbox_rows.note_tagged(session.connection(), rehoused)


def _rows(item: object) -> Iterator[Row]:
    if isinstance(item, Beacon):
        if _changed(item, *_OF_BEACON):
            yield Row("beacon_id", str(item.id))
    elif isinstance(item, Campaign):
        yield from _rows_of_campaign(item)
    elif isinstance(item, Venue):
        if inspect(item).persistent and _changed(item, *_OF_VENUE):
            yield Row("venue", str(item.id))
    elif isinstance(item, Connector):
        for company_id in {item.company_id, *_history(item, "company_id").deleted}:
            yield Row("company", str(company_id))


def _rows_of_campaign(campaign: Campaign) -> Iterator[Row]:
    columns = [key for key in inspect(campaign).attrs.keys() if key not in _NOT_OF_CAMPAIGN]  # noqa: SIM118
    if _changed(campaign, *columns):
        yield Row("campaign", str(campaign.id))
    for beacon in _come_or_gone(campaign, "beacons"):
        yield Row("beacon_id", str(beacon.id))
    for tag in _come_or_gone(campaign, "tags"):
        yield Row("tagged", f"{campaign.venue_id}:{tag.id}")


def _key(item: Any) -> int:
    # The attribute may be expired, and reading it would then need SQL.
    identity = inspect(item).identity
    return int(identity[0])


def _loses_its_triple(item: object) -> bool:
    return isinstance(item, Beacon) and _changed(item, *_TRIPLE)


def _changes_venue(item: object) -> bool:
    return isinstance(item, Campaign) and _changed(item, "venue_id", "venue")


def _changed(item: object, *names: str) -> bool:
    return any(_history(item, name).has_changes() for name in names)


def _come_or_gone(item: object, name: str) -> list[Any]:
    history = _history(item, name)
    return [*(history.added or ()), *(history.deleted or ())]


def _history(item: object, name: str) -> History:
    return inspect(item).attrs[name].history  # type: ignore[no-any-return]  # inspect is untyped
