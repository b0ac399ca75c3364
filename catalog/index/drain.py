"""Brings the index up to date: drains the outbox, or rebuilds the index from SQL."""

from dataclasses import dataclass
from enum import Enum

import structlog
from sqlalchemy import delete, exists, select
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.database import Database
from catalog.index.catalog_reader import Chunks, beacon_fields, campaign_fields, connector_fields
from catalog.index.changes import write_changes
from catalog.index.comparison import (
    ExpectedIndex,
    IndexStatus,
    LagListener,
    compare_index,
    compare_markers,
)
from catalog.index.transaction import IndexTransaction, index_transaction
from catalog.index.writer import IndexStore
from catalog.models import Outbox

_log = structlog.get_logger(__name__)

_ROWS_PER_DRAIN = 1000


class DrainResult(Enum):
    """What `drain_once` did."""

    IDLE = "idle"  # the outbox was empty
    BUSY = "busy"  # another process is writing the index
    DRAINED = "drained"
    REBUILT = "rebuilt"


@dataclass(frozen=True)
class IndexCounts:
    """How many entries a rebuild wrote."""

    beacons: int = 0
    campaigns: int = 0
    connectors: int = 0


async def drain_once(
    database: Database, store: IndexStore, *, on_lag: LagListener = lambda _: None
) -> DrainResult:
    """Write up to 1000 rows of the outbox to the index, and delete the rows.

    With an empty outbox, rebuild an index that is missing or has lost writes (`rebuild_if_missing`,
    which also explains `on_lag`). Each row is written at least once before it is deleted. Raises
    SQLAlchemyError, RedisError, OSError, TimeoutError or IndexWriteError; then the rows are still
    there, and a retry is safe.
    """
    async with database.read() as session:
        if not await session.scalar(select(exists(select(Outbox.id)))):
            return DrainResult.IDLE
    async with index_transaction(database, store, wait=False) as transaction:
        if transaction is None:
            return DrainResult.BUSY
        if await _rebuild_if_wrong(transaction, on_lag):
            return DrainResult.REBUILT
        rows = await _take_rows(transaction.session)
        await write_changes(transaction, rows)
        return DrainResult.DRAINED if rows else DrainResult.IDLE


async def rebuild(database: Database, store: IndexStore) -> IndexCounts:
    """Rebuild the whole index, whatever it holds, and empty the outbox. Raises as `drain_once`."""
    async with index_transaction(database, store, wait=True) as transaction:
        assert transaction is not None  # noqa: S101  # None only without `wait`
        return await _rebuild(transaction)


async def rebuild_if_missing(
    database: Database, store: IndexStore, *, on_lag: LagListener = lambda _: None
) -> bool:
    """Rebuild an index that is incomplete or wrong. Returns whether it was rebuilt.

    The index is wrong if it is another catalog's, or differs from what SQL wrote, because Redis or
    SQL was restored from an older copy. All processes that find the index missing wait for one
    lock: the first one rebuilds it, and the others then find it complete. `on_lag` is called before
    and after with the number of generations by which Redis is behind. Raises as `drain_once`.
    """
    found = await compare_index(database, store)
    on_lag(found.lag)
    if found.status is IndexStatus.RIGHT:
        return False
    async with index_transaction(database, store, wait=True) as transaction:
        assert transaction is not None  # noqa: S101  # None only without `wait`
        return await _rebuild_if_wrong(transaction, on_lag)


async def _rebuild_if_wrong(transaction: IndexTransaction, on_lag: LagListener) -> bool:
    # No other process writes during the transaction, so a difference is a real one.
    marker, positions = transaction.marker, transaction.positions
    expected = ExpectedIndex(marker.catalog, marker.generation, positions)
    found = compare_markers(await transaction.store.markers(), expected)
    on_lag(found.lag)
    if found.status is IndexStatus.RIGHT:
        return False
    # The first build of a catalog deserves no warning.
    log = _log.warning if any(position.generation for position in positions) else _log.info
    log(
        f"the index in Redis is {found.status.value}: rebuilding it from SQL",
        generations_behind=found.lag,
        buckets_behind=found.buckets,
    )
    await _rebuild(transaction)
    on_lag(0)
    return True


async def _take_rows(session: AsyncSession) -> list[tuple[str, str]]:
    oldest = select(Outbox.id).order_by(Outbox.id).limit(_ROWS_PER_DRAIN)
    taken = delete(Outbox).where(Outbox.id.in_(oldest)).returning(Outbox.kind, Outbox.ref)
    rows = await session.execute(taken, execution_options={"synchronize_session": False})
    return [(kind, ref) for kind, ref in rows]


async def _rebuild(transaction: IndexTransaction) -> IndexCounts:
    # Deleted before the entries are read: rows that are committed later stay in the outbox.
    session = transaction.session
    await session.execute(delete(Outbox), execution_options={"synchronize_session": False})
    await transaction.store.begin(transaction.marker)
    counts = IndexCounts(
        connectors=await _fill(transaction, connector_fields(session)),
        campaigns=await _fill(transaction, campaign_fields(session)),
        beacons=await _fill(transaction, beacon_fields(session)),
    )
    await transaction.finish()
    _log.info(
        "index built",
        beacons=counts.beacons,
        campaigns=counts.campaigns,
        generation=transaction.marker.generation,
    )
    return counts


async def _fill(transaction: IndexTransaction, chunks: Chunks) -> int:
    count = 0
    async for ids, puts in chunks:
        await transaction.fill(puts)
        count += len(ids)
    return count
