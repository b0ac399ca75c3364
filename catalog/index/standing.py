"""Whether the index in Redis is what SQL wrote: there, of this catalog, neither behind nor ahead.

SQL keeps the place of each bucket's last write. Redis is written before the turn commits, so
that what is read from SQL first and from Redis afterwards can only be behind when Redis has lost
something: it was restored from an older copy, or a replica that lagged was promoted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from sqlalchemy import select

from catalog.database import Database
from catalog.deadline import within
from catalog.index.entries import BUCKETS, Marker, WritePlace
from catalog.index.writer import IndexStore
from catalog.models import IndexState

SQL_SECONDS = 2.0
_NOWHERE = WritePlace(0, 0)

LagShown = Callable[[int], None]


class IndexStanding(Enum):
    """How the index stands to SQL; the values complete "the index in Redis is …"."""

    RIGHT = "right"
    MISSING = "missing"
    FOREIGN = "of another catalog"
    BEHIND = "older than SQL"
    AHEAD = "newer than SQL, which must have been restored from an older copy"


@dataclass(frozen=True)
class WrittenIndex:
    """What SQL says of the index."""

    catalog: str
    generation: int
    places: Sequence[WritePlace]


@dataclass(frozen=True)
class IndexComparison:
    """`lag` is how many turns the bucket that is furthest behind lacks; `buckets` how many are."""

    standing: IndexStanding
    lag: int = 0
    buckets: int = 0


def places_of(stored: Sequence[Sequence[int]] | None) -> list[WritePlace]:
    """The column `index_state.places`, a bucket each."""
    places = [WritePlace(*place) for place in stored or ()]
    return places + [_NOWHERE] * (BUCKETS - len(places))


async def compare(database: Database, store: IndexStore) -> IndexComparison:
    """How the index stands now. Raises SQLAlchemyError, RedisError, OSError or TimeoutError."""
    written = await what_sql_wrote(database)
    markers = await store.markers()
    found = judge(markers, written)
    if found.standing is IndexStanding.AHEAD:  # or a turn began between the two looks
        found = judge(markers, await what_sql_wrote(database))
    return found


async def what_sql_wrote(database: Database) -> WrittenIndex:
    """One statement, within 2 s also when SQL hangs. Raises as above."""

    async def ask() -> WrittenIndex:
        async with database.autocommit() as session:
            query = select(IndexState.catalog, IndexState.generation, IndexState.places)
            catalog, generation, places = (await session.execute(query)).one()
            return WrittenIndex(catalog, generation, places_of(places))

    return await within(SQL_SECONDS, ask())


def judge(markers: Sequence[Marker | None], written: WrittenIndex) -> IndexComparison:
    """Pure: `markers` were read after `written`, but for AHEAD, which needs it the other way."""
    behind = [
        max(1, place.generation - (0 if marker is None else marker.generation))
        for marker, place in zip(markers, written.places, strict=True)
        if (_NOWHERE if marker is None else marker.place) < place
    ]
    lag, buckets = max(behind, default=0), len(behind)
    there = [marker for marker in markers if marker is not None]
    if len(there) < len(markers):
        return IndexComparison(IndexStanding.MISSING, lag, buckets)
    if any(marker.catalog != written.catalog for marker in there):
        return IndexComparison(IndexStanding.FOREIGN, lag, buckets)
    if any(marker.generation > written.generation for marker in there):
        return IndexComparison(IndexStanding.AHEAD)
    return IndexComparison(IndexStanding.BEHIND if buckets else IndexStanding.RIGHT, lag, buckets)
