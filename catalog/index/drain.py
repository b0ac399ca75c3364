"""Bring the index up to date: drain the outbox, or build all of it again."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import structlog
from sqlalchemy import delete, exists, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.database import Database
from catalog.index.build import Chunks, beacon_fields, campaign_fields, connector_fields
from catalog.index.changes import apply
from catalog.index.entries import Marker, bucket
from catalog.index.standing import IndexStanding, LagShown, WrittenIndex, compare, judge
from catalog.index.turn import Turn, take_turn
from catalog.index.writer import IndexStore
from catalog.models import Outbox

_log = structlog.get_logger(__name__)

_ROWS_PER_TURN = 1000


class Outcome(Enum):
    """What a call did: nothing to do, another writer is at it, changes written, all rebuilt."""

    IDLE = "idle"
    BUSY = "busy"
    DRAINED = "drained"
    REBUILT = "rebuilt"


@dataclass(frozen=True)
class Built:
    """How many entries a rebuild wrote."""

    beacons: int = 0
    campaigns: int = 0
    connectors: int = 0


async def drain_once(
    database: Database, store: IndexStore, *, on_lag: LagShown = lambda _: None
) -> Outcome:
    """Write up to 1000 rows of the outbox to the index, or rebuild an index that is missing or
    has lost writes.

    With an empty outbox it looks no further (see `rebuild_if_missing`, also for `on_lag`). Each row
    is written at least once before it is deleted. Raises SQLAlchemyError, RedisError, OSError,
    TimeoutError, IndexMissingError or StaleTurnError; then the rows are still there, and it may be
    tried again.
    """
    async with database.read() as session:
        if not await session.scalar(select(exists(select(Outbox.id)))):
            return Outcome.IDLE
    async with take_turn(database, await store.markers(), wait=False) as turn:
        if turn is None:
            return Outcome.BUSY
        if await _build_unless_right(turn, store, on_lag):
            return Outcome.REBUILT
        rows = await _take_rows(turn.session)
        await apply(turn, store, rows)
        return Outcome.DRAINED if rows else Outcome.IDLE


async def rebuild(database: Database, store: IndexStore) -> Built:
    """Build the whole index again, whatever it holds, and empty the outbox. Raises as above."""
    async with take_turn(database, await store.markers(), wait=True) as turn:
        assert turn is not None  # noqa: S101  # a turn that is waited for is given
        return await _build(turn, store)


async def rebuild_if_missing(
    database: Database, store: IndexStore, *, on_lag: LagShown = lambda _: None
) -> bool:
    """Build the index if a part of it is missing, is another catalog's, or is not what SQL wrote
    (Redis or SQL was restored from an older copy); whether it was.

    For whoever finds the index missing: all of them wait for one lock, the first one builds and
    the others find it built. `on_lag` is told how many turns Redis lacks, before and after.
    Raises as above.
    """
    found = await compare(database, store)
    on_lag(found.lag)
    if found.standing is IndexStanding.RIGHT:
        return False
    async with take_turn(database, await store.markers(), wait=True) as turn:
        assert turn is not None  # noqa: S101  # a turn that is waited for is given
        return await _build_unless_right(turn, store, on_lag)


async def _build_unless_right(turn: Turn, store: IndexStore, on_lag: LagShown) -> bool:
    """In a turn nobody else writes: what differs now does so for certain."""
    written = WrittenIndex(turn.marker.catalog, turn.marker.generation, turn.places)
    found = judge(await store.markers(), written)
    on_lag(found.lag)
    if found.standing is IndexStanding.RIGHT:
        return False
    # The first build of a catalog is nothing to warn of.
    say = _log.warning if any(place.generation for place in turn.places) else _log.info
    say(
        f"the index in Redis is {found.standing.value}: rebuilding it from SQL",
        generations_behind=found.lag,
        buckets_behind=found.buckets,
    )
    await _build(turn, store)
    on_lag(0)
    return True


def is_built(markers: Sequence[Marker | None], catalog: str | None = None) -> bool:
    """Whether every bucket is built, all from one catalog, and from `catalog` if it is given."""
    catalogs = {None if marker is None else marker.catalog for marker in markers}
    return None not in catalogs and catalogs == {catalog or next(iter(catalogs))}


async def waiting(database: Database) -> int:
    """How many rows the outbox holds."""
    async with database.read() as session:
        return await session.scalar(select(func.count()).select_from(Outbox)) or 0


async def _take_rows(session: AsyncSession) -> list[tuple[str, str]]:
    oldest = select(Outbox.id).order_by(Outbox.id).limit(_ROWS_PER_TURN)
    taken = delete(Outbox).where(Outbox.id.in_(oldest)).returning(Outbox.kind, Outbox.ref)
    rows = await session.execute(taken, execution_options={"synchronize_session": False})
    return [(kind, ref) for kind, ref in rows]


async def _build(turn: Turn, store: IndexStore) -> Built:
    # First, so that it takes exactly what was committed before the entries are read.
    empty = delete(Outbox)
    await turn.session.execute(empty, execution_options={"synchronize_session": False})
    await store.begin(turn.marker)
    counts: Counter[int] = Counter()
    built = Built(
        connectors=await _fill(turn, store, connector_fields(turn.session), counts),
        campaigns=await _fill(turn, store, campaign_fields(turn.session), counts),
        beacons=await _fill(turn, store, beacon_fields(turn.session), counts),
    )
    await turn.finish(store, counts)
    _log.info(
        "index built",
        beacons=built.beacons,
        campaigns=built.campaigns,
        generation=turn.marker.generation,
    )
    return built


async def _fill(turn: Turn, store: IndexStore, chunks: Chunks, counts: Counter[int]) -> int:
    count = 0
    async for ids, puts in chunks:
        await store.fill(turn.marker, puts)
        counts.update(map(bucket, puts))
        count += len(ids)
    return count
