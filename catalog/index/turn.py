"""Whose turn it is to write the index: one writer at a time, each with a generation of its own.

A turn is two transactions. The first takes the next generation and commits it, so that it is
never given twice, also when the writer dies and the second rolls back. The second holds the lock
of the state's row (on SQLite: the database's write lock) while Redis is written. A writer that
loses its lock without knowing is refused by the scripts as soon as the next one has written.

Generations rise over what the index says, too. An index that is ahead of its own catalog means
that the database was restored from a copy: the catalog takes a new identity, which makes the
index one of another catalog, and so it is built again.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import uuid4

import msgspec
import structlog
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.database import Database
from catalog.index.entries import BUCKETS, Marker, WritePlace
from catalog.index.standing import places_of
from catalog.index.writer import IndexStore
from catalog.models import IndexState

_log = structlog.get_logger(__name__)


@dataclass
class Turn:
    """The writer's session, whose commit ends the turn, and the mark that it leaves.

    `places` is what SQL says that each bucket holds; it goes with the turn's writes, and into SQL
    with its commit. So a bucket in Redis may be ahead of it, by a turn that failed, and is behind
    it only when Redis has lost something.
    """

    session: AsyncSession
    marker: Marker
    places: list[WritePlace]

    async def write(
        self, store: IndexStore, puts: Mapping[str, bytes], removals: Iterable[str] = ()
    ) -> None:
        """Put and remove fields of the index. Raises what IndexStore.write does."""
        self.marker = msgspec.structs.replace(self.marker, step=self.marker.step + 1)
        touched = await store.write(self.marker, puts, removals, places=self.places)
        for number in touched:
            self.places[number] = self.marker.place

    async def finish(self, store: IndexStore, counts: Mapping[int, int]) -> None:
        """Put a rebuild of this turn in place. Raises what IndexStore.finish does."""
        await store.finish(self.marker, counts)
        self.places = [self.marker.place] * BUCKETS


@asynccontextmanager
async def take_turn(
    database: Database, markers: Sequence[Marker | None], *, wait: bool
) -> AsyncIterator[Turn | None]:
    """A turn that is committed when the block ends well; None when another writer has it.

    `markers` are the index's. `wait` waits for the other writer, up to the database's command
    timeout, instead of giving way to it. Raises SQLAlchemyError, OSError or TimeoutError.
    """
    while True:
        marker = await _next_generation(database, markers, wait=wait)
        if marker is None:
            yield None
            return
        async with database.write.begin() as session:
            state = await _locked(session, wait=wait)
            if state is not None and state.generation == marker.generation:
                turn = Turn(session, marker, places_of(state.places))
                yield turn
                state.places = [list(place) for place in turn.places]
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
