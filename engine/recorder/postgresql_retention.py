"""Day partitions of the traces on PostgreSQL, and retention there."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from engine.recorder.retention import RetentionWindow

TRACES = ("detection_trace", "authentication_trace")
_OTHERS = ("reception", "presence")
_DAY = timedelta(days=1)
_ROWS = 10_000
# Every process takes this lock, so that one at a time creates and drops partitions.
_LOCK = text("SELECT pg_advisory_xact_lock(7076921)")
# A transaction that waits for these locks blocks all later writers, so it fails soon instead.
_BRIEFLY = text("SET LOCAL lock_timeout = '2s'")
_PARTITIONS = text(
    "SELECT child.relname FROM pg_inherits JOIN pg_class AS child ON child.oid = inhrelid "
    "WHERE inhparent = CAST(CAST(:parent AS text) AS regclass)"
)


class PostgresRetentionStore:
    """Implements RetentionStore. Table names come from this module, never from a user."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def now(self) -> datetime:
        async with self._engine.connect() as connection:
            now: datetime = (await connection.execute(text("SELECT now()"))).scalar_one()
        return now.astimezone(UTC)

    async def create_days(self, first: date, last: date) -> int:
        days = [first + _DAY * number for number in range((last - first).days + 1)]
        created = 0
        for parent in TRACES:
            async with self._engine.begin() as connection:
                there = await _partitions(connection, parent)
                missing = [day for day in days if _name(parent, day) not in there]
                for day in missing:
                    await _create(connection, parent, day)
            created += len(missing)
        return created

    async def delete_outside(self, window: RetentionWindow) -> int:
        deleted = 0
        for parent in TRACES:
            default = f"{parent}_default"
            deleted += await self._drop_days(parent, window.since.date())
            deleted += await self._delete(default, "create_on < :limit", window.since)
            deleted += await self._delete(default, "create_on >= :limit", window.until)
        for table in _OTHERS:
            deleted += await self._delete(table, "recorded_on < :limit", window.since)
        return deleted + await self._delete("statistic_device", "day < :limit", window.day)

    async def _drop_days(self, parent: str, first: date) -> int:
        async with self._engine.begin() as connection:
            there = await _partitions(connection, parent)
            old = [name for name in there if (day := _day(parent, name)) and day < first]
            for name in old:
                await connection.execute(text(f"DROP TABLE {name}"))
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


async def _partitions(connection: AsyncConnection, parent: str) -> set[str]:
    """The names of the parent's partitions, which cannot change until the transaction ends."""
    await connection.execute(_LOCK)
    await connection.execute(_BRIEFLY)
    return set((await connection.execute(_PARTITIONS, {"parent": parent})).scalars())


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


def _day(parent: str, name: str) -> date | None:
    try:
        return (
            datetime.strptime(name.removeprefix(f"{parent}_"), "%Y%m%d").replace(tzinfo=UTC).date()
        )
    except ValueError:
        return None
