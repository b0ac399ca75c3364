"""The ledger on PostgreSQL, through asyncpg, with COPY for the traces of detections.

A trace row goes into the partition of its UTC day, so that dropping a day costs nothing. The
default partition has only rows of days that retention has dropped already.
"""

from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from typing import Any

from asyncpg import (
    CheckViolationError,
    Connection,
    ForeignKeyViolationError,
    InternalClientError,
    UniqueViolationError,
)
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from engine.recorder.ledger import (
    DayMissingError,
    DetectionRow,
    Ledger,
    LedgerTransaction,
    Row,
    statements,
)

_TRACES = ("detection_trace", "authentication_trace")
_OTHERS = ("reception", "presence", "visit_event")
_DAY = timedelta(days=1)
_ROWS = 10_000
_SQL = statements(
    now=lambda _: "now()",
    rows=lambda columns: f"SELECT * FROM json_to_recordset($1::json) AS row ({columns})",  # noqa: S608
    list=lambda type_: f"SELECT value::{type_} FROM json_array_elements_text($1::json) AS value",  # noqa: S608
    each=lambda column: f"unnest({column}) AS item (value)",
)
_SQL["add_devices_of_day"] = f"""
WITH added AS ({_SQL["add_devices_of_day"].removesuffix(";")})
SELECT day, kind, ref, count(*) FROM added GROUP BY day, kind, ref
"""  # noqa: S608  # a statement of ours
# Every process takes this lock, so that one at a time creates and drops partitions.
_LOCK = text("SELECT pg_advisory_xact_lock(7076921)")
# A transaction that waits for these locks blocks all later writers, so it fails soon instead.
_BRIEFLY = text("SET LOCAL lock_timeout = '2s'")
_PARTITIONS = """
SELECT child.relname FROM pg_inherits JOIN pg_class AS child ON child.oid = inhrelid
WHERE inhparent = CAST(CAST({} AS text) AS regclass)
"""


class PostgresLedger(Ledger):
    """`engine` uses asyncpg. The ledger shares its pool and its deadlines.

    Table names in its statements come from this module, never from a user.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._days: dict[str, set[date]] = {table: set() for table in _TRACES}  # there are more

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator["PostgresTransaction"]:
        async with self._connection() as connection:
            transaction = connection.transaction()
            await transaction.start()
            try:
                yield PostgresTransaction(connection, self._days)
            except BaseException:
                # After an interrupted COPY the connection accepts no statement: it is closed, and
                # the server rolls back.
                with suppress(Exception):
                    await transaction.rollback()
                raise
            await transaction.commit()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        async with self._engine.connect() as pooled:
            # SQLAlchemy would begin a transaction with its first statement, but gets none.
            connection = (await pooled.get_raw_connection()).driver_connection
            assert connection is not None  # noqa: S101  # only a detached one is
            try:
                yield connection
            except BaseException as error:
                # A cancelled rollback may be half done, and the pool does not know it. The next
                # user of the connection would be in a transaction that never ends.
                is_broken_off = isinstance(error, InternalClientError) or not isinstance(
                    error, Exception
                )
                if is_broken_off or connection.is_in_transaction():
                    connection.terminate()
                raise

    async def create_days(self, days: Collection[date]) -> int:
        created = 0
        for parent in _TRACES:
            async with self._engine.begin() as connection:
                there = await _locked_partitions(connection, parent)
                missing = [day for day in sorted(set(days)) if _name(parent, day) not in there]
                for day in missing:
                    await _create(connection, parent, day)
            created += len(missing)
        return created

    async def delete_outside(self, since: datetime, until: datetime, day: date) -> int:
        deleted = 0
        for parent in _TRACES:
            default = f"{parent}_default"
            deleted += await self._drop_days(parent, since.date())
            deleted += await self._delete(default, "create_on < :limit", since)
            deleted += await self._delete(default, "create_on >= :limit", until)
        for table in _OTHERS:
            deleted += await self._delete(table, "recorded_on < :limit", since)
        return deleted + await self._delete("statistic_device", "day < :limit", day)

    async def _drop_days(self, parent: str, first: date) -> int:
        async with self._engine.begin() as connection:
            there = _days_in(parent, await _locked_partitions(connection, parent))
            old = [day for day in there if day < first]
            for day in old:
                await connection.execute(text(f"DROP TABLE {_name(parent, day)}"))
        self._days[parent].difference_update(old)
        return len(old)

    async def _delete(self, table: str, condition: str, limit: date) -> int:
        """Delete rows in pieces, so that no transaction is long."""
        rows = f"SELECT ctid FROM {table} WHERE {condition} LIMIT {_ROWS}"  # noqa: S608  # see the class
        statement = text(f"DELETE FROM {table} WHERE ctid = ANY (ARRAY({rows}))")  # noqa: S608
        deleted = 0
        while True:
            async with self._engine.begin() as connection:
                result: Any = await connection.execute(statement, {"limit": limit})
            count = int(result.rowcount)
            deleted += count
            if count < _ROWS:
                return deleted


class PostgresTransaction(LedgerTransaction):
    """Writes the traces of detections by COPY.

    `days` are the known partitions of the trace tables.
    """

    foreign_key_error = ForeignKeyViolationError
    duplicate_error = UniqueViolationError

    def __init__(self, connection: "Connection[Any]", days: dict[str, set[date]]) -> None:
        self._connection = connection
        self._days = days

    async def add_detections(self, rows: Sequence[DetectionRow]) -> None:
        if rows:
            async with self._days_of("detection_trace", {row.create_on.date() for row in rows}):
                await self._connection.copy_records_to_table(
                    "detection_trace", records=rows, columns=DetectionRow._fields, timeout=None
                )

    async def add_authentications(self, rows: Sequence[Row]) -> None:
        days = {row["create_on"].date() for row in rows}
        async with self._days_of("authentication_trace", days):
            await super().add_authentications(rows)

    @asynccontextmanager
    async def _days_of(self, table: str, days: set[date]) -> AsyncIterator[None]:
        """Raise DayMissingError unless all days have partitions.

        Without one the rows would go into the default partition, and whoever is writing there when
        the day is created would fail.
        """
        known = self._days[table]
        if not days <= known:
            names = await self._connection.fetch(_PARTITIONS.format("$1"), table)
            known |= _days_in(table, (name for (name,) in names))
        if missing := days - known:
            raise DayMissingError(missing)
        try:
            yield
        except CheckViolationError as error:  # somebody created a day that retention had dropped
            raise DayMissingError from error

    async def fetch(self, name: str, *parameters: object) -> Sequence[Any]:
        found: Sequence[Any] = await self._connection.fetch(_SQL[name], *parameters)
        return found


async def _locked_partitions(connection: AsyncConnection, parent: str) -> set[str]:
    """The names of the parent's partitions, which cannot change until the transaction ends."""
    await connection.execute(_LOCK)
    await connection.execute(_BRIEFLY)
    query = text(_PARTITIONS.format(":parent"))
    return set((await connection.execute(query, {"parent": parent})).scalars())


async def _create(connection: AsyncConnection, parent: str, day: date) -> None:
    """Create the table beside its parent first: attaching it waits for no reader or writer."""
    name = _name(parent, day)
    begin = datetime.combine(day, datetime.min.time(), UTC)
    since, until = begin.isoformat(), (begin + _DAY).isoformat()
    within = f"create_on >= '{since}' AND create_on < '{until}'"
    for statement in (
        f"CREATE TABLE {name} (LIKE {parent} INCLUDING DEFAULTS INCLUDING INDEXES)",
        f"LOCK TABLE {parent}_default IN ACCESS EXCLUSIVE MODE",
        f"WITH moved AS (DELETE FROM {parent}_default WHERE {within} RETURNING *) "  # noqa: S608
        f"INSERT INTO {name} SELECT * FROM moved",
        f"ALTER TABLE {parent} ATTACH PARTITION {name} FOR VALUES FROM ('{since}') TO ('{until}')",
    ):
        await connection.execute(text(statement))


def _name(parent: str, day: date) -> str:
    return f"{parent}_{day:%Y%m%d}"


def _days_in(parent: str, names: Iterable[str]) -> set[date]:
    days = set()
    for name in names:
        with suppress(ValueError):  # the default partition
            at = datetime.strptime(name.removeprefix(f"{parent}_"), "%Y%m%d").replace(tzinfo=UTC)
            days.add(at.date())
    return days
