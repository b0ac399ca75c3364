"""What rows of the outbox mean now: from their kinds and refs to entries in the index."""

from collections import defaultdict
from collections.abc import Iterable

from sqlalchemy import ColumnElement, select, tuple_

from catalog.chunks import chunked
from catalog.index.build import Chunks, Fields, beacon_fields, campaign_fields, connector_fields
from catalog.index.entries import beacon_field, campaign_field, connector_field
from catalog.index.turn import Turn
from catalog.index.writer import IndexStore
from catalog.models import Beacon, Campaign, Connector, beacon_tag

# Three parameters a triple, well below what a statement takes on either database.
_CHUNK = 500


async def apply(turn: Turn, store: IndexStore, rows: Iterable[tuple[str, str]]) -> None:
    """Write what has changed according to the (kind, ref) rows, each thing once.

    Campaigns come before the beacons that name them, and go after them.
    """
    refs: defaultdict[str, set[str]] = defaultdict(set)
    for kind, ref in rows:
        refs[kind].add(ref)
    gone = await _write_campaigns(turn, store, refs)
    for ids in chunked(sorted(map(int, refs["company"])), _CHUNK):
        puts, missing = await _read(
            connector_fields(turn.session, Connector.company_id.in_(ids)), ids
        )
        await turn.write(store, puts, map(connector_field, missing))
    await _write_beacons(turn, store, refs)
    for chunk in chunked(gone, _CHUNK):
        await turn.write(store, {}, map(campaign_field, chunk))


async def _write_campaigns(turn: Turn, store: IndexStore, refs: dict[str, set[str]]) -> list[int]:
    gone: list[int] = []
    for ids in chunked(sorted(map(int, refs["campaign"])), _CHUNK):
        puts, missing = await _read(campaign_fields(turn.session, Campaign.id.in_(ids)), ids)
        await turn.write(store, puts)
        gone += missing
    for ids in chunked(sorted(map(int, refs["venue"])), _CHUNK):
        await _copy(turn, store, campaign_fields(turn.session, Campaign.venue_id.in_(ids)))
    return gone


async def _write_beacons(turn: Turn, store: IndexStore, refs: dict[str, set[str]]) -> None:
    for condition in _conditions(refs):
        await _copy(turn, store, beacon_fields(turn.session, condition))
    for triples in chunked(sorted(map(_triple, refs["beacon"])), _CHUNK):
        puts: Fields = {}
        condition = tuple_(Beacon.uuid, Beacon.major, Beacon.minor).in_(triples)
        async for _, fields in beacon_fields(turn.session, condition):
            puts |= fields
        missing = [field for triple in triples if (field := beacon_field(*triple)) not in puts]
        await turn.write(store, puts, missing)


def _conditions(refs: dict[str, set[str]]) -> Iterable[ColumnElement[bool]]:
    for ids in chunked(sorted(map(int, refs["beacon_id"])), _CHUNK):
        yield Beacon.id.in_(ids)
    for ids in chunked(sorted(map(int, refs["venue"])), _CHUNK):
        yield Beacon.venue_id.in_(ids)
    for pairs in chunked(sorted(map(_pair, refs["tagged"])), _CHUNK):
        carriers = select(beacon_tag.c.beacon_id).join(Beacon, Beacon.id == beacon_tag.c.beacon_id)
        named = tuple_(Beacon.venue_id, beacon_tag.c.tag_id).in_(pairs)
        yield Beacon.id.in_(carriers.where(named))


async def _copy(turn: Turn, store: IndexStore, chunks: Chunks) -> None:
    async for _, puts in chunks:
        await turn.write(store, puts)


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
