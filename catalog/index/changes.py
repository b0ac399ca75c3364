"""Writes to the index the records that outbox rows name, as SQL has them now."""

from collections import defaultdict
from collections.abc import Iterable

from sqlalchemy import ColumnElement, select, tuple_

from catalog.chunks import chunked
from catalog.index.catalog_reader import (
    Chunks,
    Fields,
    beacon_fields,
    campaign_fields,
    connector_fields,
)
from catalog.index.entries import beacon_field, campaign_field, connector_field
from catalog.index.transaction import IndexTransaction
from catalog.models import Beacon, Campaign, Connector, beacon_tag

# Three parameters a triple, well below what a statement takes on either database.
_CHUNK = 500


async def write_changes(transaction: IndexTransaction, rows: Iterable[tuple[str, str]]) -> None:
    """Write the records that (kind, ref) rows name, each once. Remove deleted records.

    Campaigns are written before the beacons that name them, and removed after them.
    """
    refs: defaultdict[str, set[str]] = defaultdict(set)
    for kind, ref in rows:
        refs[kind].add(ref)
    deleted = await _write_campaigns(transaction, refs)
    for ids in chunked(sorted(map(int, refs["company"])), _CHUNK):
        puts, missing = await _read(
            connector_fields(transaction.session, Connector.company_id.in_(ids)), ids
        )
        await transaction.write(puts, map(connector_field, missing))
    await _write_beacons(transaction, refs)
    for chunk in chunked(deleted, _CHUNK):
        await transaction.write({}, map(campaign_field, chunk))


async def _write_campaigns(transaction: IndexTransaction, refs: dict[str, set[str]]) -> list[int]:
    deleted: list[int] = []
    for ids in chunked(sorted(map(int, refs["campaign"])), _CHUNK):
        puts, missing = await _read(campaign_fields(transaction.session, Campaign.id.in_(ids)), ids)
        await transaction.write(puts)
        deleted += missing
    for ids in chunked(sorted(map(int, refs["venue"])), _CHUNK):
        await _write_all(
            transaction, campaign_fields(transaction.session, Campaign.venue_id.in_(ids))
        )
    return deleted


async def _write_beacons(transaction: IndexTransaction, refs: dict[str, set[str]]) -> None:
    for condition in _beacon_conditions(refs):
        await _write_all(transaction, beacon_fields(transaction.session, condition))
    for triples in chunked(sorted(map(_triple, refs["beacon"])), _CHUNK):
        puts: Fields = {}
        condition = tuple_(Beacon.uuid, Beacon.major, Beacon.minor).in_(triples)
        async for _, fields in beacon_fields(transaction.session, condition):
            puts |= fields
        missing = [field for triple in triples if (field := beacon_field(*triple)) not in puts]
        await transaction.write(puts, missing)


def _beacon_conditions(refs: dict[str, set[str]]) -> Iterable[ColumnElement[bool]]:
    for ids in chunked(sorted(map(int, refs["beacon_id"])), _CHUNK):
        yield Beacon.id.in_(ids)
    for ids in chunked(sorted(map(int, refs["venue"])), _CHUNK):
        yield Beacon.venue_id.in_(ids)
    for pairs in chunked(sorted(map(_pair, refs["tagged"])), _CHUNK):
        carriers = select(beacon_tag.c.beacon_id).join(Beacon, Beacon.id == beacon_tag.c.beacon_id)
        named = tuple_(Beacon.venue_id, beacon_tag.c.tag_id).in_(pairs)
        yield Beacon.id.in_(carriers.where(named))


async def _write_all(transaction: IndexTransaction, chunks: Chunks) -> None:
    async for _, puts in chunks:
        await transaction.write(puts)


async def _read(chunks: Chunks, wanted: list[int]) -> tuple[Fields, list[int]]:
    puts: Fields = {}
    missing = set(wanted)
    async for ids, fields in chunks:
        puts |= fields
        missing.difference_update(ids)
    return puts, sorted(missing)


def _triple(ref: str) -> tuple[str, int, int]:
    uuid, major, minor = ref.split(":")
    return uuid, int(major), int(minor)


def _pair(ref: str) -> tuple[int, int]:
    venue_id, tag_id = ref.split(":")
    return int(venue_id), int(tag_id)
