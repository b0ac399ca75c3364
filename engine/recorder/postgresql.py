"""The ledger on PostgreSQL, through asyncpg: columns as arrays, and COPY for the traces."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from asyncpg import (
    CheckViolationError,
    Connection,
    ForeignKeyViolationError,
    InternalClientError,
    UniqueViolationError,
)
from sqlalchemy.ext.asyncio import AsyncEngine

from engine.recorder.errors import DayPartitionCreatedError, NewDeviceCountedError
from engine.recorder.ledger import Ledger, LedgerTransaction, statements
from engine.recorder.rows import (
    AuthenticationRow,
    CopiedRows,
    DetectionRow,
    ReceptionRow,
    RegisteredApplication,
    StatisticKey,
)

_SQL = statements("postgresql")
# The table and columns of COPY, by the name of the statement that it replaces.
_COPIES = {
    "add_detections": ("detection_trace", DetectionRow._fields),
    "add_authentications": ("authentication_trace", AuthenticationRow._fields),
    "add_receptions": ("reception", ReceptionRow._fields),
    "append_statistic_devices": ("statistic_device", (*StatisticKey._fields, "device_id")),
}


class PostgresLedger(Ledger):
    """`engine` uses asyncpg. The ledger shares its pool and its deadlines."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._tells_new = True

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator["PostgresTransaction"]:
        async with self._connection() as connection:
            transaction = connection.transaction()
            await transaction.start()
            try:
                yield PostgresTransaction(connection, tells_new=self._tells_new)
            except BaseException as error:
                if isinstance(error, NewDeviceCountedError):
                    self._tells_new = False
                # After an interrupted COPY the connection accepts no statement: it is closed, and
                # the server rolls back.
                with suppress(Exception):
                    await transaction.rollback()
                raise
            await transaction.commit()

    async def applications(self, keys: Collection[str]) -> Mapping[str, RegisteredApplication]:
        found = await self._find("applications", keys)
        return {key: RegisteredApplication(*application) for key, *application in found}

    async def _find(self, name: str, parameter: str | Collection[Any]) -> list[Any]:
        value = parameter if isinstance(parameter, str) else list(parameter)
        async with self._connection() as connection:
            return list(await connection.fetch(_SQL[name], value))

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


class PostgresTransaction(LedgerTransaction):
    """Passes rows as arrays, one for each column, and by COPY."""

    foreign_key_error = ForeignKeyViolationError
    duplicate_error = UniqueViolationError

    def __init__(self, connection: "Connection[Any]", *, tells_new: bool) -> None:
        self._connection = connection
        self.tells_new = tells_new

    async def _fetch(self, name: str, *parameters: object) -> list[Any]:
        return list(await self._connection.fetch(_SQL[name], *parameters))

    async def _has_changed_one(self, name: str, *parameters: object) -> bool:
        status: str = await self._connection.execute(_SQL[name], *parameters)
        return status.endswith(" 1")

    async def _write(self, name: str, rows: list[tuple[Any, ...]], width: int) -> None:
        await self._connection.execute(_SQL[name], *self._table(rows, width))

    async def _append(self, name: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if not rows:
            return
        table, columns = _COPIES[name]
        try:
            if isinstance(rows, CopiedRows):
                await self._connection.copy_to_table(
                    table, source=rows.as_copy(), columns=columns, format="binary", timeout=None
                )
            else:
                await self._connection.copy_records_to_table(
                    table, records=rows, columns=columns, timeout=None
                )
        except CheckViolationError as error:
            # The default partition accepted these rows when COPY began, and refuses them now.
            raise DayPartitionCreatedError from error

    def _table(self, rows: Collection[Sequence[Any]], width: int) -> Sequence[object]:
        return [list(column) for column in zip(*rows, strict=True)] if rows else [[]] * width

    def _columns(self, columns: Sequence[Sequence[Any]]) -> Sequence[object]:
        # A shorter array is filled up with NULLs, and each element costs 50 ns.
        return [[] if column.count(None) == len(column) else column for column in columns]

    def _list(self, values: Collection[Any]) -> object:
        return list(values)
