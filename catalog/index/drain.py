"""Brings the index up to date: drains the outbox, or rebuilds the index from SQL.

There is one writer at a time: it locks the row of `index_state` (on SQLite: the whole database)
while Redis is written. SQL stores the generation of the last write, and Redis is written before SQL
commits. So an index that is read after SQL is behind it only if Redis has lost a write: it was
restored from an older copy, or a lagging replica was promoted. It is ahead if a writer died before
its commit, or if the database was restored from an older copy. In all these cases it is rebuilt.
"""

import asyncio
import random
import re
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from importlib.resources import files
from typing import Any
from uuid import uuid4

import msgspec
import structlog
from asyncpg import InterfaceError, PostgresError
from redis.exceptions import RedisError, ResponseError
from sqlalchemy import ColumnElement, Select, delete, exists, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.bounds import within
from catalog.database import Database, database_may_recover
from catalog.errors import IndexWriteError
from catalog.index import reading
from catalog.index.entries import (
    BUCKETS,
    MARKER_FIELD,
    REBUILT,
    IndexKeys,
    Marker,
    bucket,
    campaign_field,
    connector_field,
    decode_marker,
    encode,
    geofences_field,
    rules_field,
)
from catalog.models import Application, Campaign, Company, Connector, IndexState, Outbox, Venue
from catalog.redis_connection import RedisClient
from catalog.session import with_deleted

# The errors while SQL or Redis is down, the index is missing, or another process writes it.
# (A TimeoutError is an OSError.)
OUTAGES = (SQLAlchemyError, PostgresError, InterfaceError, RedisError, OSError, IndexWriteError)
_SQL_SECONDS = 2.0
_CHANGES_KEPT = 10_000
_ABANDONED_SECONDS = 3600
_ROWS_PER_DRAIN = 1000
_log = structlog.get_logger(__name__)

LagListener = Callable[[int], None]
Markers = Sequence[Marker | None]


class IndexStore:
    """The index in one Redis. `deadline` (seconds) bounds each round trip.

    Each write names the marker that it expects in every bucket. So a writer that is not the last
    one, or whose earlier writes Redis has lost, changes nothing. The scripts of scripts.lua are
    sent whole (EVAL), which works after a failover and in a cluster's pipeline. Each of them may be
    sent twice.

    Raises RedisError, OSError or TimeoutError if Redis fails or does not answer.
    """

    def __init__(
        self, redis: RedisClient, *, prefix: str = "proximity:", deadline: float = 5.0
    ) -> None:
        self.keys = IndexKeys(prefix)
        self._redis = redis
        self._deadline = deadline
        text = files("catalog.index").joinpath("scripts.lua").read_text(encoding="utf-8")
        _, *parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)
        self._scripts = dict(zip(parts[::2], parts[1::2], strict=True))

    async def markers(self) -> list[Marker | None]:
        """The marker of each bucket; None where the bucket is not built."""
        pipeline = self._redis.pipeline(transaction=False)
        for number in range(BUCKETS):
            pipeline.hget(self.keys.bucket(number), MARKER_FIELD)
        return [None if raw is None else decode_marker(raw) for raw in await self._run(pipeline)]

    async def write(
        self,
        before: Marker | None,
        marker: Marker,
        puts: Mapping[str, bytes],
        removals: Iterable[str] = (),
    ) -> None:
        """Put and remove fields, then announce them to readers. Raises IndexWriteError.

        Every bucket must have the marker `before`, and has `marker` afterwards.
        """
        gone = list(removals)
        removed: defaultdict[int, list[str]] = defaultdict(list)
        put: defaultdict[int, list[str | bytes]] = defaultdict(list)
        for name in gone:
            removed[bucket(name)].append(name)
        for name, value in puts.items():
            put[bucket(name)] += (name, value)
        markers = [b"" if before is None else encode(before), encode(marker)]
        pipeline = self._redis.pipeline(transaction=False)
        for number in range(BUCKETS):
            arguments: list[Any] = [len(removed[number]), *removed[number], *put[number]]
            pipeline.eval(self._scripts["write"], 1, self.keys.bucket(number), *markers, *arguments)
        await self._run(pipeline)
        await self._announce(marker, msgspec.json.encode([*puts, *gone]))

    async def fill(self, marker: Marker, puts: Mapping[str, bytes]) -> None:
        """Put fields into a rebuild, beside the index that readers use."""
        pipeline = self._redis.pipeline(transaction=False)
        for name, value in puts.items():
            key = self.keys.building(bucket(name), marker.writer)
            pipeline.hset(key, name, value)
            pipeline.expire(key, _ABANDONED_SECONDS)
        await self._run(pipeline)

    async def finish(self, before: Markers, marker: Marker, counts: Mapping[int, int]) -> None:
        """Replace the index with the rebuild, then announce it. Raises IndexWriteError.

        Each bucket must have its marker of `before`. `counts` is how many fields were put into
        each, because a Redis that was restored meanwhile may hold only some of them.
        """
        pipeline = self._redis.pipeline(transaction=False)
        for number, expected in enumerate(before):
            keys = [self.keys.bucket(number), self.keys.building(number, marker.writer)]
            found = b"" if expected is None else encode(expected)
            arguments: list[Any] = [found, encode(marker), counts.get(number, 0)]
            pipeline.eval(self._scripts["finish"], 2, *keys, *arguments)
        await self._run(pipeline)
        await self._announce(marker, REBUILT)

    async def _announce(self, marker: Marker, keys: str | bytes) -> None:
        pipeline = self._redis.pipeline(transaction=False)
        arguments: list[Any] = [_CHANGES_KEPT, marker.generation, keys]
        pipeline.eval(self._scripts["announce"], 1, self.keys.changes, *arguments)
        await self._run(pipeline)

    async def _run(self, pipeline: Any) -> list[Any]:
        async with asyncio.timeout(self._deadline):
            replies: list[Any] = await pipeline.execute(raise_on_error=False)
        for reply in replies:
            if isinstance(reply, ResponseError) and str(reply).startswith("LOST"):
                raise IndexWriteError(f"the index was lost while it was written: {reply}")
            if isinstance(reply, Exception):
                raise reply
        return replies


class DrainResult(Enum):
    """What `drain_once` did."""

    IDLE = "idle"  # the outbox was empty
    BUSY = "busy"  # another process is writing the index
    DRAINED = "drained"
    REBUILT = "rebuilt"


def compare_markers(markers: Markers, catalog: str, generation: int) -> tuple[bool, int]:
    """Whether the index is that of the last write, and how many generations it is behind SQL.

    SQL gives `catalog` and `generation`.
    """
    present = {marker for marker in markers if marker is not None}
    lag = max(0, generation - min((marker.generation for marker in present), default=0))
    last = [(marker.catalog, marker.generation) for marker in present]
    return None not in markers and last == [(catalog, generation)], lag


@dataclass(kw_only=True)
class IndexTransaction:
    """The only writer of the index. `markers` are those that the buckets have.

    The commit of `session` stores the generation of the last write. The methods raise the errors
    of IndexStore.
    """

    session: AsyncSession
    store: IndexStore
    state: IndexState
    markers: Markers

    def _next_marker(self) -> Marker:
        """The marker of the next write. No other write has it."""
        generations = (marker.generation for marker in self.markers if marker is not None)
        generation = max(self.state.generation, *generations, 0) + 1
        return Marker(catalog=self.state.catalog, generation=generation, writer=uuid4().hex[:16])

    async def write(self, puts: dict[str, bytes], removals: Iterable[str] = ()) -> None:
        """Put and remove fields of the index, which must be right."""
        marker = self._next_marker()
        await self.store.write(self.markers[0], marker, puts, removals)
        self._written(marker)

    async def rebuild(self) -> dict[str, int]:
        """Write the whole index anew, and empty the outbox. Returns how many entries of each kind
        (READERS) there are.
        """
        # Deleted before the entries are read: rows that are committed later stay in the outbox.
        options = {"synchronize_session": False}
        await self.session.execute(delete(Outbox), execution_options=options)
        counts = dict.fromkeys(reading.READERS, 0)
        marker, filled = self._next_marker(), Counter[int]()
        for kind, read in reading.READERS.items():
            async for puts in read(self.session):
                await self.store.fill(marker, puts)
                filled.update(map(bucket, puts))
                counts[kind] += len(puts)
        await self.store.finish(self.markers, marker, filled)
        self._written(marker)
        _log.info("index built", **counts, generation=marker.generation)
        return counts

    async def rebuild_if_wrong(self, on_lag: LagListener) -> bool:
        """Rebuild the index unless it is that of the last write. Returns whether it was rebuilt."""
        is_right, lag = compare_markers(self.markers, self.state.catalog, self.state.generation)
        on_lag(lag)
        if is_right:
            return False
        log = _log.warning if self.state.generation else _log.info  # the first build is no fault
        log("the index in Redis is not SQL's: rebuilding it", generations_behind=lag)
        await self.rebuild()
        on_lag(0)
        return True

    def _written(self, marker: Marker) -> None:
        self.markers = [marker] * len(self.markers)
        self.state.generation = marker.generation


@asynccontextmanager
async def index_transaction(
    database: Database, store: IndexStore, *, wait: bool
) -> AsyncIterator[IndexTransaction | None]:
    """A transaction, committed when the block ends without an error; None if another is open.

    With `wait` it waits for the other writer, up to the database's command timeout. Raises
    SQLAlchemyError, RedisError, OSError or TimeoutError.
    """
    async with database.write.begin() as session:
        query = select(IndexState).with_for_update(skip_locked=not wait)
        state = (await session.scalars(query)).one_or_none()
        if state is None:
            yield None
            return
        markers = await store.markers()
        yield IndexTransaction(session=session, store=store, state=state, markers=markers)


async def write_changes(transaction: IndexTransaction, rows: Iterable[tuple[str, str]]) -> None:
    """Write the records that (kind, ref) rows name, each once. Remove deleted records.

    Campaigns are written before the places that name them, and removed after them.
    """
    refs: defaultdict[str, set[str]] = defaultdict(set)
    for kind, ref in rows:
        refs[kind].add(ref)
    session, removals = transaction.session, refs["field"]
    numbers = ("campaign", "targets", "venue", "company", "owner", "application")
    campaigns, targets, venues, companies, owned, applications = (
        set(map(int, refs[kind])) for kind in numbers
    )
    inside = (Campaign.venue_id.in_(venues), Campaign.deleted_at.is_not(None))
    deleted = await _numbers(session, select(Campaign.id).where(*inside), venues)
    campaigns, targets = campaigns | deleted, targets | deleted
    owners = select(Venue.company_id).where(Venue.id.in_(owned))
    companies |= await _numbers(session, owners, owned)
    reads: list[tuple[Any, Callable[..., reading.Chunks], ColumnElement[bool]]] = [
        (campaigns, reading.campaign_fields, Campaign.id.in_(campaigns)),
        (venues, reading.campaign_fields, Campaign.venue_id.in_(venues)),
        (companies, reading.connector_fields, Connector.company_id.in_(companies)),
        (companies, reading.rules_fields, Company.id.in_(companies)),
        (companies, reading.circle_fields, Venue.company_id.in_(companies)),
        (applications, reading.application_fields, Application.id.in_(applications)),
    ]
    for table in reading.PLACES:
        model = table.model
        ids = set(map(int, refs[model.__tablename__]))
        of_table = partial(reading.place_fields, table)
        reads += [
            (ids, of_table, model.id.in_(ids)),
            (venues, of_table, model.venue_id.in_(venues)),
            (targets, of_table, reading.targeted_by(targets, table)),
        ]
    for field_of in (connector_field, rules_field, geofences_field):
        removals |= set(map(field_of, companies))
    removals |= set(map(campaign_field, campaigns))
    for named, read, condition in reads:
        if named:
            async for puts in read(session, condition):
                await transaction.write(puts)
                removals -= puts.keys()
    if removals:
        await transaction.write({}, removals)


async def _numbers(session: AsyncSession, query: Select[int], wanted: set[int]) -> set[int]:
    return set(await session.scalars(with_deleted(query))) if wanted else set()


async def drain_once(
    database: Database, store: IndexStore, *, on_lag: LagListener = lambda _: None
) -> DrainResult:
    """Write up to 1000 rows of the outbox to the index, and delete the rows.

    If the index is incomplete or wrong, rebuild it. `on_lag` is called with the number of
    generations by which Redis is behind. Each row is written at least once before it is deleted.
    Raises SQLAlchemyError, RedisError, OSError, TimeoutError or IndexWriteError; then the rows are
    still there, and a retry is safe. SQL has 2 s to say whether there is something to do.
    """
    catalog, generation, has_rows = await within(_SQL_SECONDS, _state_of(database))
    is_right, lag = compare_markers(await store.markers(), catalog, generation)
    on_lag(lag)
    if is_right and not has_rows:
        return DrainResult.IDLE
    async with index_transaction(database, store, wait=False) as transaction:
        if transaction is None:
            return DrainResult.BUSY
        if await transaction.rebuild_if_wrong(on_lag):
            return DrainResult.REBUILT
        oldest = select(Outbox.id).order_by(Outbox.id).limit(_ROWS_PER_DRAIN)
        taken = await transaction.session.execute(
            delete(Outbox).where(Outbox.id.in_(oldest)).returning(Outbox.kind, Outbox.ref),
            execution_options={"synchronize_session": False},
        )
        rows = [(kind, ref) for kind, ref in taken]
        await write_changes(transaction, rows)
        return DrainResult.DRAINED if rows else DrainResult.IDLE


async def _state_of(database: Database) -> tuple[str, int, bool]:
    """The catalog, the generation of the last write, and whether the outbox has rows."""
    has_rows = exists(select(Outbox.id))
    async with database.read() as session:
        query = select(IndexState.catalog, IndexState.generation, has_rows)
        catalog, generation, found = (await session.execute(query)).one()
        return catalog, generation, found


async def rebuild(database: Database, store: IndexStore) -> dict[str, int]:
    """Rebuild the index, whatever it holds (IndexTransaction.rebuild). Raises as `drain_once`."""
    async with index_transaction(database, store, wait=True) as transaction:
        assert transaction is not None  # noqa: S101  # None only without `wait`
        return await transaction.rebuild()


@dataclass(kw_only=True, eq=False)
class OutboxDrainer:
    """Calls `drain_once` every `poll` seconds.

    An outage of SQL or Redis is logged once and retried, after a pause that doubles up to
    `longest_pause`. Any other error is a mistake in the program and ends `run`. `failures` counts
    consecutive failures.
    """

    database: Database
    store: IndexStore
    poll: float = 0.25
    longest_pause: float = 10.0
    on_lag: LagListener = lambda _: None
    failures: int = 0

    async def run(self) -> None:
        """Run until cancelled, which is safe: rows not committed are drained again."""
        while True:
            pause = await self._step()
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311

    async def _step(self) -> float:
        """Drain once. Returns the seconds to pause."""
        try:
            outcome = await drain_once(self.database, self.store, on_lag=self.on_lag)
        except OUTAGES as error:
            self.failures += 1
            if self.failures == 1:  # one line for the outage; its end has another
                text = f"{type(error).__name__}: {error}".partition("\n")[0]
                passes = not isinstance(error, SQLAlchemyError) or database_may_recover(error)
                _log.warning("index cannot be kept up to date", error=text, passes=passes)
            return min(self.poll * 2.0 ** min(self.failures, 16), self.longest_pause)
        if self.failures:
            _log.info("index is kept up to date again", failures=self.failures)
            self.failures = 0
        return 0.0 if outcome is DrainResult.DRAINED else self.poll
