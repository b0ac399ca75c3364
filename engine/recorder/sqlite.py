"""The ledger on SQLite: rows are passed as one JSON list."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import date, datetime
from typing import Any, TypeVar

from sqlalchemy import delete, or_, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from catalog.database import with_write_lock
from catalog.models import (
    AuthenticationTrace,
    CountedVisitEvent,
    DetectionTrace,
    Presence,
    Reception,
    StatisticDevice,
)
from engine.recorder.ledger import Ledger, LedgerTransaction, statements

_ROWS = 10_000


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


_SQL = {
    name: re.sub(r"\$(\d)", r"?\1", statement)
    for name, statement in statements(
        now=lambda _: _value("'now'", "timestamptz"),
        rows=_rows_of,
        list=lambda type_: f"SELECT {_value('value', type_)} FROM json_each($1)",  # noqa: S608
        each=lambda column: f"json_each({column}) AS item",
    ).items()
}

Result = TypeVar("Result")


class SqliteLedger(Ledger):
    """One transaction writes at a time, others wait for it. `engine` is aiosqlite's."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = with_write_lock(engine)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator["SqliteTransaction"]:
        async with self._engine.connect() as connection:
            await _to_its_end(connection.begin())
            try:
                yield SqliteTransaction(connection)
            except BaseException:
                await _to_its_end(connection.rollback())
                raise
            await _to_its_end(connection.commit())

    async def create_days(self, days: Collection[date]) -> int:  # noqa: ARG002
        return 0  # SQLite has no partitions

    async def delete_outside(self, since: datetime, until: datetime, day: date) -> int:
        deleted = 0
        for trace in (DetectionTrace, AuthenticationTrace):
            is_outside = or_(trace.create_on < since, trace.create_on >= until)
            old = select(trace.id).where(is_outside).limit(_ROWS)
            while count := await self._run(delete(trace).where(trace.id.in_(old))):
                deleted += count
        for statement in (
            delete(Reception).where(Reception.recorded_on < since),
            delete(Presence).where(Presence.recorded_on < since),
            delete(CountedVisitEvent).where(CountedVisitEvent.recorded_on < since),
            delete(StatisticDevice).where(StatisticDevice.day < day),
        ):
            deleted += await self._run(statement)
        return deleted

    async def _run(self, statement: Any) -> int:
        async with self._engine.begin() as connection:
            result: Any = await connection.execute(statement)
        return int(result.rowcount)


class SqliteTransaction(LedgerTransaction):
    """A transaction that holds the database's only write lock."""

    foreign_key_error = duplicate_error = IntegrityError

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def fetch(self, name: str, *parameters: object) -> Sequence[Any]:
        statement = self._connection.exec_driver_sql(_SQL[name], parameters)
        result = await _to_its_end(statement)
        return result.all() if result.returns_rows else []


async def _to_its_end(statement: Awaitable[Result]) -> Result:
    """The result of a statement, which is awaited even if the caller is cancelled.

    SQLite runs the statement in a thread that cannot be stopped. Left alone, the statement would
    keep the write lock.
    """
    task = asyncio.ensure_future(statement)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        # An error that is never retrieved would be reported by the event loop.
        raise cancelled from None if task.cancelled() else task.exception()
    return task.result()
