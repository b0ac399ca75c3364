"""Brings the index up to date: drains the outbox, or rebuilds the index from SQL."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

import structlog
from asyncpg import InterfaceError, PostgresError
from redis.exceptions import RedisError
from sqlalchemy import (
    ColumnElement,
    String,
    and_,
    cast,
    delete,
    exists,
    insert,
    literal,
    or_,
    select,
    tuple_,
)
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.database import Database, database_may_recover, sql_now
from catalog.errors import IndexWriteError
from catalog.index.entries import beacon_field, campaign_field, connector_field
from catalog.index.reading import (
    AFTER_END,
    BEFORE_START,
    Chunks,
    beacon_fields,
    campaign_fields,
    connector_fields,
)
from catalog.index.store import IndexStore
from catalog.index.transaction import (
    ExpectedIndex,
    IndexStatus,
    IndexTransaction,
    LagListener,
    compare_index,
    compare_markers,
    index_transaction,
)
from catalog.models import Beacon, Campaign, Connector, IndexState, Outbox, beacon_tag

DATE_CHECK_INTERVAL = timedelta(minutes=10)
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
_DATE_CHECK_SECONDS = 60.0
_ROWS_PER_DRAIN = 1000
_log = structlog.get_logger(__name__)


async def write_changes(transaction: IndexTransaction, rows: Iterable[tuple[str, str]]) -> None:
    """Write the records that (kind, ref) rows name, each once. Remove deleted records.

    Campaigns are written before the beacons that name them, and removed after them.
    """
    refs: defaultdict[str, set[str]] = defaultdict(set)
    for kind, ref in rows:
        refs[kind].add(ref)
    session = transaction.session
    campaigns, venues, companies, beacons = (
        sorted(map(int, refs[kind])) for kind in ("campaign", "venue", "company", "beacon_id")
    )
    triples, tagged = sorted(map(_triple, refs["beacon"])), sorted(map(_pair, refs["tagged"]))
    carriers = select(beacon_tag.c.beacon_id).join(Beacon, Beacon.id == beacon_tag.c.beacon_id)
    carriers = carriers.where(tuple_(Beacon.venue_id, beacon_tag.c.tag_id).in_(tagged))
    triple = tuple_(Beacon.uuid, Beacon.major, Beacon.minor)
    written: set[str] = set()
    for named, read, condition in (
        (campaigns, campaign_fields, Campaign.id.in_(campaigns)),
        (venues, campaign_fields, Campaign.venue_id.in_(venues)),
        (companies, connector_fields, Connector.company_id.in_(companies)),
        (beacons, beacon_fields, Beacon.id.in_(beacons)),
        (venues, beacon_fields, Beacon.venue_id.in_(venues)),
        (tagged, beacon_fields, Beacon.id.in_(carriers)),
        (triples, beacon_fields, triple.in_(triples)),
    ):
        if named:
            async for _, puts in read(session, condition):
                await transaction.write(puts)
                written |= puts.keys()
    gone = [connector_field(number) for number in companies]
    gone += [beacon_field(*each) for each in triples]
    gone += [campaign_field(number) for number in campaigns]
    if removed := [field for field in gone if field not in written]:
        await transaction.write({}, removed)


def _triple(ref: str) -> tuple[str, int, int]:
    uuid, major, minor = ref.split(":")
    return uuid, int(major), int(minor)


def _pair(ref: str) -> tuple[int, int]:
    venue_id, tag_id = ref.split(":")
    return int(venue_id), int(tag_id)


async def enqueue_date_changes(database: Database) -> bool:
    """Put campaigns into the outbox whose need of content has changed with the date.

    One of all processes does this every 10 minutes. Returns whether this call did. Raises
    SQLAlchemyError, OSError or TimeoutError.
    """
    async with database.autocommit() as session:
        now = await sql_now(session)
        swept_at = await session.scalar(select(IndexState.swept_at))
    if swept_at is not None and now - swept_at < DATE_CHECK_INTERVAL:
        return False
    async with database.write.begin() as session:
        state = (
            await session.scalars(select(IndexState).with_for_update(skip_locked=True))
        ).one_or_none()
        if state is None or state.swept_at != swept_at:
            return False  # another process is writing the index, or has done this
        now = await sql_now(session)
        if swept_at is not None:  # without it the index is new: a migration had it rebuilt
            ref = cast(Campaign.id, String)
            due = select(literal("campaign"), ref).where(_changes_between(swept_at, now))
            await session.execute(insert(Outbox).from_select(["kind", "ref"], due))
        state.swept_at = now
    return True


def _changes_between(since: datetime, until: datetime) -> ColumnElement[bool]:
    """Campaigns for which the date alone changes `may_fire` after `since`, up to `until`."""
    begins = and_(
        Campaign.start_at > since + BEFORE_START, Campaign.start_at <= until + BEFORE_START
    )
    ends = and_(Campaign.end_at >= since - AFTER_END, Campaign.end_at < until - AFTER_END)
    return or_(begins, ends)


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


class OutboxDrainer:
    """Drains the outbox every `poll` seconds, and regularly compares the index with SQL.

    An outage of SQL or Redis is logged once and retried, after a pause that doubles up to
    `longest_pause`. Any other error is a mistake in the program and ends `run`. Each pause is
    multiplied by `jitter()`, a factor near 1. `failures` counts consecutive failures. `on_lag` is
    called with the number of generations that Redis is behind.
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
        jitter: Callable[[], float] = lambda: random.uniform(0.8, 1.2),  # noqa: S311
        on_lag: LagListener = lambda _: None,
    ) -> None:
        self._database = database
        self._store = store
        self._poll = poll
        self._comparison_interval = comparison_interval
        self._longest_pause = longest_pause
        self._clock = clock
        self._jitter = jitter
        self._on_lag = on_lag
        self.failures = 0
        self._compared_at: float | None = None
        self._dates_checked_at: float | None = None
        self._nudged = asyncio.Event()

    def nudge(self) -> None:
        """Drain at once: rows were just written. A pause after a failure is not shortened."""
        self._nudged.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set. Cancelling is safe: rows not committed are drained again."""
        while not stop.is_set():
            self._nudged.clear()
            pause = await self._step()
            if pause:
                await _wait(stop, pause, None if self.failures else self._nudged)

    async def _step(self) -> float:
        try:
            outcome = await self._work()
        except OUTAGES as error:
            return self._failed(error)
        if self.failures:
            _log.info("index is kept up to date again", failures=self.failures)
            self.failures = 0
        return 0.0 if outcome is DrainResult.DRAINED else self._poll * self._jitter()

    async def _work(self) -> DrainResult:
        now = self._clock()
        if self._compared_at is None or now - self._compared_at >= self._comparison_interval:
            await rebuild_if_missing(self._database, self._store, on_lag=self._on_lag)
            self._compared_at = now
        if self._dates_checked_at is None or now - self._dates_checked_at >= _DATE_CHECK_SECONDS:
            await enqueue_date_changes(self._database)
            self._dates_checked_at = now
        return await drain_once(self._database, self._store, on_lag=self._on_lag)

    def _failed(self, error: Exception) -> float:
        # Redis may have lost the index: compare it before anything else.
        self._compared_at = None
        self.failures += 1
        pause = min(self._poll * 2.0 ** min(self.failures, 16), self._longest_pause)
        if self.failures == 1:  # one line for the outage; its end has another
            _log.warning(
                "index cannot be kept up to date",
                error=_one_line(error),
                passes=not isinstance(error, SQLAlchemyError) or database_may_recover(error),
            )
        return pause * self._jitter()


async def _wait(stop: asyncio.Event, seconds: float, nudged: asyncio.Event | None) -> None:
    waits = {asyncio.create_task(event.wait()) for event in (stop, nudged) if event is not None}
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _one_line(error: Exception) -> str:
    text = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
