"""Transactions on the index, and its comparison with what SQL wrote to it.

There is one writer at a time, each with a generation of its own. An index transaction is two SQL
transactions. The first takes the next generation and commits it, so that no generation is given
twice, even if the writer dies and the second rolls back. The second locks the row of `index_state`
(on SQLite: the whole database) while Redis is written. A writer that has lost its lock without
noticing is refused by the scripts once the next writer has written.

SQL keeps the position of each bucket's last write. Redis is written before SQL commits. So a bucket
that is read after SQL can be behind SQL only if Redis has lost a write: it was restored from an
older copy, or a lagging replica was promoted. If the index is ahead of its own catalog, the
database was restored from a copy. The catalog then takes a new identity, so that the index is
another catalog's and is rebuilt.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from uuid import uuid4

import msgspec
import structlog
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.database import Database
from catalog.deadline import within
from catalog.index.entries import BUCKETS, NOTHING_WRITTEN, Marker, WritePosition, bucket
from catalog.index.store import IndexStore
from catalog.models import IndexState

SQL_SECONDS = 2.0
_log = structlog.get_logger(__name__)

LagListener = Callable[[int], None]


class IndexStatus(Enum):
    """How the index compares with SQL; the values complete "the index in Redis is …"."""

    RIGHT = "right"
    MISSING = "missing"
    FOREIGN = "of another catalog"
    BEHIND = "older than SQL"
    AHEAD = "newer than SQL, which must have been restored from an older copy"


@dataclass(frozen=True)
class ExpectedIndex:
    """The state of the index by SQL: `positions` has the last write of each bucket."""

    catalog: str
    generation: int
    positions: Sequence[WritePosition]


@dataclass(frozen=True)
class IndexComparison:
    """The result: `buckets` are behind SQL, the worst of them by `lag` generations."""

    status: IndexStatus
    lag: int = 0
    buckets: int = 0


def write_positions(stored: Sequence[Sequence[int]] | None) -> list[WritePosition]:
    """The position of each bucket, from the column `index_state.places`."""
    positions = [WritePosition(*position) for position in stored or ()]
    return positions + [NOTHING_WRITTEN] * (BUCKETS - len(positions))


async def compare_index(database: Database, store: IndexStore) -> IndexComparison:
    """Compare the index now. Raises SQLAlchemyError, RedisError, OSError or TimeoutError.

    SQL has 2 s to answer.
    """
    expected = await within(SQL_SECONDS, _read_expected(database))
    markers = await store.markers()
    found = compare_markers(markers, expected)
    if found.status is IndexStatus.AHEAD:  # or a writer began between the two reads
        found = compare_markers(markers, await within(SQL_SECONDS, _read_expected(database)))
    return found


async def _read_expected(database: Database) -> ExpectedIndex:
    async with database.autocommit() as session:
        query = select(IndexState.catalog, IndexState.generation, IndexState.places)
        catalog, generation, places = (await session.execute(query)).one()
        return ExpectedIndex(catalog, generation, write_positions(places))


def compare_markers(markers: Sequence[Marker | None], expected: ExpectedIndex) -> IndexComparison:
    """Compare markers with SQL's positions. Pure.

    Markers that were read after `expected` show a lost write reliably. Markers that were read
    before it show reliably that the index is AHEAD.
    """
    behind = [
        max(1, position.generation - (0 if marker is None else marker.generation))
        for marker, position in zip(markers, expected.positions, strict=True)
        if (NOTHING_WRITTEN if marker is None else marker.position) < position
    ]
    lag, buckets = max(behind, default=0), len(behind)
    present = [marker for marker in markers if marker is not None]
    if len(present) < len(markers):
        return IndexComparison(IndexStatus.MISSING, lag, buckets)
    if any(marker.catalog != expected.catalog for marker in present):
        return IndexComparison(IndexStatus.FOREIGN, lag, buckets)
    if any(marker.generation > expected.generation for marker in present):
        return IndexComparison(IndexStatus.AHEAD)
    return IndexComparison(IndexStatus.BEHIND if buckets else IndexStatus.RIGHT, lag, buckets)


@dataclass(kw_only=True)
class IndexTransaction:
    """The only writer of the index. `marker` has the generation and step of the last write.

    `positions` is the last write of each bucket. Every write sends it to Redis, and the commit of
    `session` stores it in SQL. So a bucket in Redis may be ahead of SQL, after a transaction that
    failed, and is behind only if Redis has lost a write. The methods raise the errors of
    IndexStore.
    """

    session: AsyncSession
    store: IndexStore
    marker: Marker
    positions: list[WritePosition]
    rebuilt: Counter[int] = field(default_factory=Counter)  # fields of the rebuild, by bucket

    async def write(self, puts: Mapping[str, bytes], removals: Iterable[str] = ()) -> None:
        """Put and remove fields of the index."""
        self.marker = msgspec.structs.replace(self.marker, step=self.marker.step + 1)
        touched = await self.store.write(self.marker, puts, removals, positions=self.positions)
        for number in touched:
            self.positions[number] = self.marker.position

    async def fill(self, puts: Mapping[str, bytes]) -> None:
        """Put fields into the rebuild that `store.begin` has started."""
        await self.store.fill(self.marker, puts)
        self.rebuilt.update(map(bucket, puts))

    async def finish(self) -> None:
        """Replace the index with the rebuild."""
        await self.store.finish(self.marker, self.rebuilt)
        self.positions = [self.marker.position] * BUCKETS


@asynccontextmanager
async def index_transaction(
    database: Database, store: IndexStore, *, wait: bool
) -> AsyncIterator[IndexTransaction | None]:
    """A transaction, committed when the block ends without an error; None if another is open.

    With `wait` it waits for the other writer, up to the database's command timeout. Raises
    SQLAlchemyError, RedisError, OSError or TimeoutError.
    """
    markers = await store.markers()
    while True:
        marker = await _next_generation(database, markers, wait=wait)
        if marker is None:
            yield None
            return
        async with database.write.begin() as session:
            state = await _locked(session, wait=wait)
            if state is not None and state.generation == marker.generation:
                transaction = IndexTransaction(
                    session=session,
                    store=store,
                    marker=marker,
                    positions=write_positions(state.places),
                )
                yield transaction
                state.places = [list(position) for position in transaction.positions]
                return
        if not wait:
            yield None
            return


async def _next_generation(
    database: Database, markers: Sequence[Marker | None], *, wait: bool
) -> Marker | None:
    written = [marker for marker in markers if marker is not None]
    async with database.write.begin() as session:
        state = await _locked(session, wait=wait)
        if state is None:
            return None
        if any(m.catalog == state.catalog and m.generation > state.generation for m in written):
            _log.warning("index is ahead of the database, which must be an older copy")
            state.catalog = str(uuid4())
        state.generation = max(state.generation, *(m.generation for m in written), 0) + 1
        return Marker(catalog=state.catalog, generation=state.generation)


async def _locked(session: AsyncSession, *, wait: bool) -> IndexState | None:
    query = select(IndexState).with_for_update(skip_locked=not wait)
    state = (await session.scalars(query)).one_or_none()
    if state is None and wait:
        raise LookupError("the table index_state has lost its row")
    return state
