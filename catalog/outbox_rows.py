"""The statements of catalog.outbox: they insert rows that are known, or select them in SQL."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, SelectBase, String, cast, insert, literal, select

from catalog.chunks import chunked
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

_CHUNK = 1000


class OutboxRow(NamedTuple):
    """A row of the outbox; see catalog.outbox for the kinds."""

    kind: str
    ref: str


def insert_rows(connection: Connection, rows: Iterable[OutboxRow]) -> None:
    """Insert rows that are known."""
    for chunk in chunked(rows, _CHUNK):
        connection.execute(insert(Outbox), [row._asdict() for row in chunk])


def note_triples(connection: Connection, beacon_ids: Sequence[int]) -> None:
    """Insert the triples that beacons have in SQL now, which a session may not have loaded."""
    for ids in chunked(beacon_ids, _CHUNK):
        _insert_triples(connection, Beacon.id.in_(ids))


def note_tagged(connection: Connection, campaign_ids: Sequence[int]) -> None:
    """Insert a row for each tag of campaigns, at the venue that they have in SQL now."""
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


def _delete_companies(connection: Connection, company_ids: Sequence[int]) -> None:
    for ids in chunked(company_ids, _CHUNK):
        _lock(connection, Company.id, Company.id.in_(ids))
        insert_rows(connection, (OutboxRow("company", str(number)) for number in ids))
        _delete_venues(connection, _lock(connection, Venue.id, Venue.company_id.in_(ids)))


def _delete_venues(connection: Connection, venue_ids: Sequence[int]) -> None:
    for ids in chunked(venue_ids, _CHUNK):
        _lock(connection, Venue.id, Venue.id.in_(ids))
        _insert_triples(connection, Beacon.venue_id.in_(ids))
        living = (Campaign.venue_id.in_(ids), Campaign.deleted_at.is_(None))
        _delete_campaigns(connection, _lock(connection, Campaign.id, *living))


def _delete_campaigns(connection: Connection, campaign_ids: Sequence[int]) -> None:
    for ids in chunked(campaign_ids, _CHUNK):
        _lock(connection, Campaign.id, Campaign.id.in_(ids))
        insert_rows(connection, (OutboxRow("campaign", str(number)) for number in ids))
        targets = select(literal("beacon_id"), _text(campaign_beacon.c.beacon_id))
        _insert_from(connection, targets.where(campaign_beacon.c.campaign_id.in_(ids)))
        note_tagged(connection, ids)


def _delete_tags(connection: Connection, tag_ids: Sequence[int]) -> None:
    for ids in chunked(tag_ids, _CHUNK):
        _lock(connection, Tag.id, Tag.id.in_(ids))
        carriers = select(literal("beacon_id"), _text(beacon_tag.c.beacon_id))
        _insert_from(connection, carriers.where(beacon_tag.c.tag_id.in_(ids)))


def _delete_connectors(connection: Connection, connector_ids: Sequence[int]) -> None:
    owners = select(literal("company"), _text(Connector.company_id))
    for ids in chunked(connector_ids, _CHUNK):
        _insert_from(connection, owners.where(Connector.id.in_(ids)))


# What to insert before records of a table, and all that SQL deletes with them, are deleted.
DELETIONS: dict[type, Callable[[Connection, Sequence[int]], None]] = {
    Company: _delete_companies,
    Venue: _delete_venues,
    Campaign: _delete_campaigns,
    Tag: _delete_tags,
    Beacon: note_triples,
    Connector: _delete_connectors,
}
