"""The ledgers: on PostgreSQL, through asyncpg, with COPY for the traces of detections; on SQLite.

In PostgreSQL a trace row goes into the partition of its UTC day, so that dropping a day costs
nothing. Retention creates days ahead. A batch with a row of a day that is not created yet waits.
"""

import re
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from catalog.database import with_write_lock
from engine.recorder.ledger import DetectionRow, Ledger, LedgerTransaction, statements

_TRACES = ("detection_trace", "authentication_trace")
_DAY = timedelta(days=1)
_POSTGRESQL = statements(
    now=lambda _: "now()",
    rows=lambda columns: f"SELECT * FROM json_to_recordset($1::json) AS row ({columns})",  # noqa: S608
    list=lambda type_: f"SELECT value::{type_} FROM json_array_elements_text($1::json) AS value",  # noqa: S608
    each=lambda column: f"unnest({column}) AS item (value)",
)
_POSTGRESQL["add_devices_of_day"] = f"""
WITH added AS ({_POSTGRESQL["add_devices_of_day"].removesuffix(";")})
SELECT day, kind, ref, count(*) FROM added GROUP BY day, kind, ref
"""  # noqa: S608  # a statement of ours
# Every process takes this lock, so that one at a time creates and drops partitions.
_LOCK = text("SELECT pg_advisory_xact_lock(7076921)")
# A transaction that waits for these locks blocks all later writers, so it fails soon instead.
_BRIEFLY = text("SET LOCAL lock_timeout = '2s'")
_PARTITIONS = text(
    "SELECT child.relname FROM pg_inherits JOIN pg_class AS child ON child.oid = inhrelid "
    "WHERE inhparent = CAST(CAST(:parent AS text) AS regclass)"
)


class PostgresTransaction(LedgerTransaction):
    """Writes the traces of detections by COPY."""

    async def add_detections(self, rows: Sequence[DetectionRow]) -> None:
        if rows:
            driver: Any = (await self.connection.get_raw_connection()).driver_connection
            await driver.copy_records_to_table(
                "detection_trace", records=rows, columns=DetectionRow._fields, timeout=None
            )


class PostgresLedger(Ledger):
    """`engine` uses asyncpg."""

    _row_id, _among = "ctid", "= ANY (ARRAY({}))"
    _transaction = PostgresTransaction
    _sql = _POSTGRESQL

    async def create_days(self, first: date, last: date) -> int:
        days = [first + _DAY * number for number in range((last - first).days + 1)]
        created = 0
        for parent in _TRACES:
            async with self.engine.begin() as connection:
                there = await _locked_partitions(connection, parent)
                for day in days:
                    if (name := _name(parent, day)) not in there:
                        await _create(connection, parent, name, day)
                        created += 1
        return created

    async def _delete_traces(self, since: datetime) -> int:
        dropped = 0
        for parent in _TRACES:
            async with self.engine.begin() as connection:
                for name in await _locked_partitions(connection, parent):
                    if name < _name(parent, since):
                        await connection.execute(text(f"DROP TABLE {name}"))
                        dropped += 1
        return dropped


async def _locked_partitions(connection: AsyncConnection, parent: str) -> set[str]:
    """The names of the parent's partitions, which cannot change until the transaction ends."""
    await connection.execute(_LOCK)
    await connection.execute(_BRIEFLY)
    return set((await connection.execute(_PARTITIONS, {"parent": parent})).scalars())


async def _create(connection: AsyncConnection, parent: str, name: str, day: date) -> None:
    """Create the table beside its parent first: attaching it waits for no reader or writer."""
    range_ = f"FROM ('{day} 00:00+00') TO ('{day + _DAY} 00:00+00')"
    for statement in (
        f"CREATE TABLE {name} (LIKE {parent} INCLUDING DEFAULTS INCLUDING INDEXES)",
        f"ALTER TABLE {parent} ATTACH PARTITION {name} FOR VALUES {range_}",
    ):
        await connection.execute(text(statement))


def _name(parent: str, day: date) -> str:
    return f"{parent}_{day:%Y%m%d}"


def _rows_of(columns: str) -> str:
    values = []
    for column in columns.split(", "):
        name, type_ = column.split()
        value = _value(f"json_extract(value, '$.{name}')", type_)
        values.append(f"{value} AS {name}")
    return f"SELECT {', '.join(values)} FROM json_each($1)"  # noqa: S608  # columns of ours


def _value(text: str, type_: str) -> str:
    """The value in the form in which SQLAlchemy writes it into SQLite."""
    if type_ == "timestamptz":
        return f"strftime('%Y-%m-%d %H:%M:%f000', {text})"
    return f"replace({text}, '-', '')" if type_ == "uuid" else text


_SQLITE = {
    name: re.sub(r"\$(\d)", r"?\1", statement)
    for name, statement in statements(
        now=lambda _: _value("'now'", "timestamptz"),
        rows=_rows_of,
        list=lambda type_: f"SELECT {_value('value', type_)} FROM json_each($1)",  # noqa: S608
        each=lambda column: f"json_each({column}) AS item",
    ).items()
}


class SqliteLedger(Ledger):
    """One transaction writes at a time, others wait for it. `engine` is aiosqlite's."""

    _row_id, _among = "rowid", "IN ({})"
    _sql = _SQLITE

    def __init__(self, engine: AsyncEngine) -> None:
        super().__init__(with_write_lock(engine))

    async def create_days(self, first: date, last: date) -> int:  # noqa: ARG002
        return 0

    async def _delete_traces(self, since: datetime) -> int:
        return sum([await self._delete(trace, "create_on", since) for trace in _TRACES])
