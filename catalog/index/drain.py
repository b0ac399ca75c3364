"""Brings the index up to date: drains the outbox, or rebuilds the index from SQL.

There is one writer at a time: it locks the row of `index_state` (on SQLite: the whole database)
while Redis is written. SQL stores the generation of the last write, and Redis is written before SQL
commits. So an index that is read after SQL is behind it only if Redis has lost a write: it was
restored from an older copy, or a lagging replica was promoted. It is ahead if a writer died before
its commit, or if the database was restored from an older copy. In all these cases it is rebuilt.
"""

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any
from uuid import uuid4

import structlog
from asyncpg import InterfaceError, PostgresError
from redis.exceptions import RedisError
from sqlalchemy import ColumnElement, delete, exists, select, tuple_
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.database import Database, database_may_recover, within
from catalog.errors import IndexWriteError
from catalog.index.entries import (
    Marker,
    beacon_field,
    bucket,
    campaign_field,
    connector_field,
    geofence_field,
    geofences_field,
    rules_field,
    tag_field,
)
from catalog.index.reading import (
    PLACES,
    Chunks,
    application_fields,
    beacon_fields,
    campaign_fields,
    circle_fields,
    connector_fields,
    geofence_fields,
    place_fields,
    rules_fields,
    scan_tag_fields,
    targeted_by,
)
from catalog.index.store import IndexStore, Markers
from catalog.models import (
    Application,
    Beacon,
    Campaign,
    Company,
    Connector,
    IndexState,
    Outbox,
    ScanTag,
    Venue,
)
from catalog.session import with_deleted

# The errors while SQL or Redis is down, the index is missing, or another process writes it.
OUTAGES = (
    SQLAlchemyError,
    PostgresError,
    InterfaceError,
    RedisError,
    OSError,
    TimeoutError,
    IndexWriteError,
)
_SQL_SECONDS = 2.0
_ROWS_PER_DRAIN = 1000
_log = structlog.get_logger(__name__)

LagListener = Callable[[int], None]


class IndexStatus(Enum):
    """How the index compares with SQL; the values complete "the index in Redis is …"."""

    RIGHT = "right"
    MISSING = "missing"
    FOREIGN = "of another catalog"
    BEHIND = "older than SQL"
    AHEAD = "newer than SQL"


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
    geofences: int = 0
    scan_tags: int = 0
    applications: int = 0
    campaigns: int = 0
    connectors: int = 0


def compare_markers(markers: Markers, catalog: str, generation: int) -> tuple[IndexStatus, int]:
    """The status, and by how many generations the index is behind SQL, which gives the others."""
    present = [marker for marker in markers if marker is not None]
    lag = max(0, generation - min((marker.generation for marker in present), default=0))
    if len(present) < len(markers):
        return IndexStatus.MISSING, lag
    if any(marker.catalog != catalog for marker in present):
        return IndexStatus.FOREIGN, lag
    if lag:
        return IndexStatus.BEHIND, lag
    right = len(set(present)) == 1 and present[0].generation == generation
    return IndexStatus.RIGHT if right else IndexStatus.AHEAD, 0


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
    rebuilt: Counter[int] = field(default_factory=Counter)  # fields of the rebuild, by bucket

    def next_marker(self) -> Marker:
        """The marker of the next write. No other write has it."""
        generations = (marker.generation for marker in self.markers if marker is not None)
        generation = max(self.state.generation, *generations, 0) + 1
        return Marker(catalog=self.state.catalog, generation=generation, writer=uuid4().hex[:16])

    async def write(self, puts: dict[str, bytes], removals: Iterable[str] = ()) -> None:
        """Put and remove fields of the index, which must be right."""
        marker = self.next_marker()
        await self.store.write(self.markers[0], marker, puts, removals)
        self._written(marker)

    async def fill(self, marker: Marker, chunks: Chunks) -> int:
        """Put entries into the rebuild. Returns how many."""
        count = 0
        async for ids, puts in chunks:
            await self.store.fill(marker, puts)
            self.rebuilt.update(map(bucket, puts))
            count += len(ids)
        return count

    async def finish(self, marker: Marker) -> None:
        """Replace the index with the rebuild."""
        await self.store.finish(self.markers, marker, self.rebuilt)
        self._written(marker)

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
    session = transaction.session
    campaigns, targets, venues, companies, applications, circles, visits, rules = (
        set(map(int, refs[kind]))
        for kind in (
            *("campaign", "targets", "venue", "company", "app_id"),
            *("geofences", "visits", "rules"),
        )
    )
    beacons, geofences, scan_tags = places = tuple(
        set(map(int, refs[kind])) for kind in ("beacon_id", "geofence", "scan_tag_id")
    )
    if venues:
        removed = select(Venue.id).where(Venue.id.in_(venues), Venue.deleted_at.is_not(None))
        inside = select(Campaign.id).where(Campaign.venue_id.in_(removed))
        gone = set(await session.scalars(with_deleted(inside)))
        campaigns, targets = campaigns | gone, targets | gone
        for table, ids in zip(PLACES, places, strict=True):
            inside = select(table.model.id).where(table.model.venue_id.in_(removed))
            ids |= set(await session.scalars(with_deleted(inside)))
    # The triple of a deleted beacon may be another beacon's by now, and the value of a tag.
    triples = set(map(_triple, refs["beacon"]))
    deleted = select(Beacon.uuid, Beacon.major, Beacon.minor)
    deleted = deleted.where(Beacon.id.in_(beacons), Beacon.deleted_at.is_not(None))
    for uuid, major, minor in await session.execute(with_deleted(deleted)):
        triples.add((uuid, major, minor))
    value = tuple_(ScanTag.company_id, ScanTag.kind, ScanTag.value)
    values = select(ScanTag.company_id, ScanTag.kind, ScanTag.value)
    values = values.where(ScanTag.id.in_(scan_tags), ScanTag.deleted_at.is_not(None))
    taken = {(row[0], row[1], row[2]) for row in await session.execute(with_deleted(values))}
    owned = await _owners(session, circles)
    rules |= await _owners(session, visits)
    tagged = {tuple(map(int, ref.split(":"))) for ref in refs["tagged"]}
    triple = tuple_(Beacon.uuid, Beacon.major, Beacon.minor)
    reads: list[tuple[Any, Callable[..., Chunks], ColumnElement[bool]]] = [
        (campaigns, campaign_fields, Campaign.id.in_(campaigns)),
        (venues, campaign_fields, Campaign.venue_id.in_(venues)),
        (companies, connector_fields, Connector.company_id.in_(companies)),
        (rules, rules_fields, Company.id.in_(rules)),
        (applications, application_fields, Application.id.in_(applications)),
        (owned, circle_fields, Venue.company_id.in_(owned)),
        (triples, beacon_fields, triple.in_(triples)),
        (taken, scan_tag_fields, value.in_(taken)),
    ]
    for table, ids in zip(PLACES, places, strict=True):
        model, tags = table.model, table.tags
        of_table = partial(place_fields, table)
        carriers = select(table.of(tags)).join(model, model.id == table.of(tags))
        carriers = carriers.where(tuple_(model.venue_id, tags.c.tag_id).in_(tagged))
        reads += [
            (ids, of_table, model.id.in_(ids)),
            (venues, of_table, model.venue_id.in_(venues)),
            (targets, of_table, targeted_by(targets, table)),
            (tagged, of_table, model.id.in_(carriers)),
        ]
    written: set[str] = set()
    for named, read, condition in reads:
        if named:
            async for _, puts in read(session, condition):
                await transaction.write(puts)
                written |= puts.keys()
    removals = [connector_field(number) for number in companies]
    removals += [rules_field(number) for number in rules]
    removals += [beacon_field(*each) for each in triples]
    removals += [geofence_field(number) for number in geofences]
    removals += [tag_field(*each) for each in taken]
    removals += [geofences_field(number) for number in owned]
    removals += [*refs["scan_tag"], *refs["app"]]
    removals += [campaign_field(number) for number in campaigns]
    if removals := [each for each in removals if each not in written]:
        await transaction.write({}, removals)


async def _owners(session: AsyncSession, venues: set[int]) -> set[int]:
    owners = select(Venue.company_id).where(Venue.id.in_(venues))
    return set(await session.scalars(with_deleted(owners))) if venues else set()


def _triple(ref: str) -> tuple[str, int, int]:
    uuid, major, minor = ref.split(":")
    return uuid, int(major), int(minor)


async def drain_once(
    database: Database, store: IndexStore, *, on_lag: LagListener = lambda _: None
) -> DrainResult:
    """Write up to 1000 rows of the outbox to the index, and delete the rows.

    If the index is missing or wrong, rebuild it (`rebuild_if_missing`, which also explains
    `on_lag`). Each row is written at least once before it is deleted. Raises SQLAlchemyError,
    RedisError, OSError, TimeoutError or IndexWriteError; then the rows are still there, and a retry
    is safe.
    """
    async with database.read() as session:
        if not await session.scalar(select(exists(select(Outbox.id)))):
            return DrainResult.IDLE
    async with index_transaction(database, store, wait=False) as transaction:
        if transaction is None:
            return DrainResult.BUSY
        if await _rebuild_if_wrong(transaction, on_lag):
            return DrainResult.REBUILT
        oldest = select(Outbox.id).order_by(Outbox.id).limit(_ROWS_PER_DRAIN)
        taken = await transaction.session.execute(
            delete(Outbox).where(Outbox.id.in_(oldest)).returning(Outbox.kind, Outbox.ref),
            execution_options={"synchronize_session": False},
        )
        rows = [(kind, ref) for kind, ref in taken]
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

    All processes that find the index wrong wait for one lock: the first one rebuilds it, and the
    others then find it right. `on_lag` is called before and after with the number of generations by
    which Redis is behind. Raises as `drain_once`; SQL has 2 s to answer.
    """
    catalog, generation = await within(_SQL_SECONDS, _expected(database))
    status, lag = compare_markers(await store.markers(), catalog, generation)
    on_lag(lag)
    if status is IndexStatus.RIGHT:
        return False
    async with index_transaction(database, store, wait=True) as transaction:
        assert transaction is not None  # noqa: S101  # None only without `wait`
        return await _rebuild_if_wrong(transaction, on_lag)


async def _expected(database: Database) -> tuple[str, int]:
    async with database.autocommit() as session:
        query = select(IndexState.catalog, IndexState.generation)
        catalog, generation = (await session.execute(query)).one()
        return catalog, generation


async def _rebuild_if_wrong(transaction: IndexTransaction, on_lag: LagListener) -> bool:
    state = transaction.state
    status, lag = compare_markers(transaction.markers, state.catalog, state.generation)
    on_lag(lag)
    if status is IndexStatus.RIGHT:
        return False
    log = _log.warning if state.generation else _log.info  # the first build is no fault
    log(f"the index in Redis is {status.value}: rebuilding it from SQL", generations_behind=lag)
    await _rebuild(transaction)
    on_lag(0)
    return True


async def _rebuild(transaction: IndexTransaction) -> IndexCounts:
    # Deleted before the entries are read: rows that are committed later stay in the outbox.
    session = transaction.session
    await session.execute(delete(Outbox), execution_options={"synchronize_session": False})
    marker = transaction.next_marker()
    counts = IndexCounts(
        connectors=await transaction.fill(marker, connector_fields(session)),
        campaigns=await transaction.fill(marker, campaign_fields(session)),
        beacons=await transaction.fill(marker, beacon_fields(session)),
        geofences=await transaction.fill(marker, geofence_fields(session)),
        scan_tags=await transaction.fill(marker, scan_tag_fields(session)),
        applications=await transaction.fill(marker, application_fields(session)),
    )
    await transaction.fill(marker, circle_fields(session))
    await transaction.fill(marker, rules_fields(session))
    await transaction.finish(marker)
    _log.info(
        "index built",
        beacons=counts.beacons,
        geofences=counts.geofences,
        tags=counts.scan_tags,
        campaigns=counts.campaigns,
        generation=marker.generation,
    )
    return counts


class OutboxDrainer:
    """Drains the outbox every `poll` seconds, and regularly compares the index with SQL.

    An outage of SQL or Redis is logged once and retried, after a pause that doubles up to
    `longest_pause`. Any other error is a mistake in the program and ends `run`. `failures` counts
    consecutive failures. `on_lag` is called with the number of generations that Redis is behind.
    """

    def __init__(
        self,
        *,
        database: Database,
        store: IndexStore,
        poll: float = 0.25,
        comparison_interval: float = 1.0,
        longest_pause: float = 10.0,
        clock: Callable[[], float],
        on_lag: LagListener = lambda _: None,
    ) -> None:
        self._database = database
        self._store = store
        self._poll = poll
        self._comparison_interval = comparison_interval
        self._longest_pause = longest_pause
        self._clock = clock
        self._on_lag = on_lag
        self.failures = 0
        self._compared_at: float | None = None
        self._nudged = asyncio.Event()

    def nudge(self) -> None:
        """Drain at once: rows were just written. A pause after a failure is not shortened."""
        if not self.failures:
            self._nudged.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set. Cancelling is safe: rows not committed are drained again."""
        while not stop.is_set():
            self._nudged.clear()
            if pause := await self._step():
                await _wait((stop, self._nudged), pause * random.uniform(0.8, 1.2))  # noqa: S311

    async def _step(self) -> float:
        """Compare or drain. Returns the seconds to pause."""
        try:
            now = self._clock()
            if self._compared_at is None or now - self._compared_at >= self._comparison_interval:
                await rebuild_if_missing(self._database, self._store, on_lag=self._on_lag)
                self._compared_at = now
            outcome = await drain_once(self._database, self._store, on_lag=self._on_lag)
        except OUTAGES as error:
            return self._failed(error)
        if self.failures:
            _log.info("index is kept up to date again", failures=self.failures)
            self.failures = 0
        return 0.0 if outcome is DrainResult.DRAINED else self._poll

    def _failed(self, error: Exception) -> float:
        # Redis may have lost the index: compare it before anything else.
        self._compared_at = None
        self.failures += 1
        if self.failures == 1:  # one line for the outage; its end has another
            _log.warning(
                "index cannot be kept up to date",
                error=f"{type(error).__name__}: {error}".partition("\n")[0],
                passes=not isinstance(error, SQLAlchemyError) or database_may_recover(error),
            )
        return min(self._poll * 2.0 ** min(self.failures, 16), self._longest_pause)


async def _wait(events: Iterable[asyncio.Event], seconds: float) -> None:
    """Wait until one of the events is set, or for `seconds`."""
    waits = {asyncio.create_task(event.wait()) for event in events}
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
