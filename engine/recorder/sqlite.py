"""The ledger on SQLite: rows are passed as one JSON list, or many at a time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime
from typing import Any, TypeVar
from uuid import UUID

import orjson
from sqlalchemy import CursorResult
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from catalog.database import with_write_lock
from engine.recorder.ledger import Ledger, LedgerTransaction, statements
from engine.recorder.rows import RegisteredApplication

_SQL = statements("sqlite")
_INSTANT = "%Y-%m-%d %H:%M:%S.%f"

Result = TypeVar("Result")


class SqliteLedger(Ledger):
    """One transaction writes at a time, others wait for it. `engine` is
    aiosqlite's.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._reading = engine
        self._writing = with_write_lock(engine)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator["SqliteTransaction"]:
        async with self._writing.connect() as connection:
            await to_its_end(connection.begin())
            try:
                yield SqliteTransaction(connection)
            except BaseException:
                await to_its_end(connection.rollback())
                raise
            await to_its_end(connection.commit())

    async def applications(self, keys: Collection[str]) -> Mapping[str, RegisteredApplication]:
        return {
            key: RegisteredApplication(
                number, company, bool(active), None if expire_on is None else _instant(expire_on)
            )
            for key, number, company, active, expire_on in await self._find("applications", keys)
        }

    async def _find(self, name: str, parameter: str | Collection[Any]) -> list[Any]:
        value = parameter if isinstance(parameter, str) else _json(parameter)
        async with self._reading.connect() as connection:
            return list((await connection.exec_driver_sql(_SQL[name], (value,))).all())


class SqliteTransaction(LedgerTransaction):
    """A transaction that holds the database's only write lock."""

    foreign_key_error = duplicate_error = IntegrityError

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def _fetch(self, name: str, *parameters: object) -> list[Any]:
        return list((await self._run(name, *parameters)).all())

    async def _has_changed_one(self, name: str, *parameters: object) -> bool:
        return bool((await self._run(name, *parameters)).rowcount == 1)

    async def _run(self, name: str, *parameters: object) -> CursorResult[Any]:
        return await to_its_end(self._connection.exec_driver_sql(_SQL[name], parameters))

    async def _write(self, name: str, rows: list[tuple[Any, ...]], width: int) -> None:  # noqa: ARG002
        await self._append(name, rows)

    async def _append(self, name: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            written = [tuple(map(_written, row)) for row in rows]
            await to_its_end(self._connection.exec_driver_sql(_SQL[name], written))

    def _table(self, rows: Collection[Sequence[Any]], width: int) -> Sequence[object]:  # noqa: ARG002
        return [_json(rows)]

    def _columns(self, columns: Sequence[Sequence[Any]]) -> Sequence[object]:
        return [_json(list(zip(*columns, strict=True)))]

    def _list(self, values: Collection[Any]) -> object:
        return _json(values)

    def _written(self, value: Any) -> Any:
        return _written(value)

    def _instant(self, value: Any) -> datetime:
        return _instant(value)

    def _day(self, value: Any) -> date:
        return date.fromisoformat(value)

    def _uuid(self, value: Any) -> UUID:
        return UUID(value)


async def to_its_end(statement: Awaitable[Result]) -> Result:
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


def _json(values: Collection[Any]) -> str:
    """Rows or values as a JSON list; dates in it are written as SQLAlchemy does."""
    return orjson.dumps(
        [tuple(each) if isinstance(each, tuple) else _written(each) for each in values]
    ).decode()


def _written(value: Any) -> Any:
    """The value in the form in which SQLAlchemy writes it into SQLite."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime(_INSTANT)
    if isinstance(value, UUID):
        return value.hex
    return str(value) if isinstance(value, date) else value


def _instant(text: str) -> datetime:
    return datetime.strptime(text, _INSTANT).replace(tzinfo=UTC)
