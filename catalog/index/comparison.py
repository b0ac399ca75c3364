"""Compares the index in Redis with SQL's record of what was written to it.

SQL keeps the position of each bucket's last write (docs/decisions/0040). Redis is written before
SQL commits. So a bucket that is read after SQL can be behind SQL only if Redis has lost a write: it
was restored from an older copy, or a lagging replica was promoted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from sqlalchemy import select

from catalog.database import Database
from catalog.deadline import within
from catalog.index.entries import BUCKETS, NOTHING_WRITTEN, Marker, WritePosition
from catalog.index.writer import IndexStore
from catalog.models import IndexState

SQL_SECONDS = 2.0

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
