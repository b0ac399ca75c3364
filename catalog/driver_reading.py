"""Runs a statement by PostgreSQL's driver itself.

SQLAlchemy makes the text of a statement once, and knows the types of its columns. What it does in
each execution besides, and its result, take several times as long as the driver.
"""

from collections.abc import Callable
from typing import Any, cast

import asyncpg
from sqlalchemy import Connection, Dialect, Select
from sqlalchemy.exc import DBAPIError, InterfaceError, InternalError, ProgrammingError
from sqlalchemy.sql.compiler import ExpandedState
from sqlalchemy.util import await_only

# The driver's errors, and what SQLAlchemy makes of them.
_KINDS: dict[type[Exception], type[DBAPIError]] = {
    asyncpg.SyntaxOrAccessError: ProgrammingError,
    asyncpg.InternalServerError: InternalError,
    asyncpg.PostgresError: DBAPIError,
    asyncpg.InterfaceError: InterfaceError,
    asyncpg.InternalClientError: InternalError,
}
_Conversion = tuple[str, Callable[[Any], Any]]


class DriverReading:
    """A SELECT of columns as the driver takes it, for connections of one dialect."""

    def __init__(self, statement: Select[*tuple[Any, ...]], dialect: Dialect) -> None:
        self.dialect = dialect
        self._columns = statement.selected_columns
        self._names = tuple(self._columns.keys())
        self._compiled = statement.compile(dialect=dialect)
        self.text = str(self._compiled)
        self._to_driver = {
            name: convert
            for name, parameter in self._compiled.binds.items()
            if (convert := parameter.type.dialect_impl(dialect).bind_processor(dialect))
        }
        self._from_driver: list[_Conversion] | None = None  # until the driver has told the types

    def rows(self, connection: Connection, values: dict[str, object]) -> list[dict[str, Any]]:
        """Every row, by the columns' names. Raises the errors that the connection would raise."""
        state = self._compiled.construct_expanded_state(values)
        arguments = self._arguments(state)
        driver = cast(asyncpg.Connection, connection.connection.driver_connection)
        try:
            if self._from_driver is None:
                self._from_driver = self._found(await_only(driver.prepare(state.statement)))
            found = await_only(driver.fetch(state.statement, *arguments))
        except tuple(_KINDS) as error:
            raise _refused(connection, driver, state.statement, error) from error
        except BaseException as error:  # broken off: it is not known what the server does
            connection.invalidate(error)
            raise
        rows = [dict(zip(self._names, record, strict=True)) for record in found]
        for name, convert in self._from_driver:
            for row in rows:
                row[name] = convert(row[name])
        return rows

    def _arguments(self, state: ExpandedState) -> tuple[Any, ...]:
        convert = {**self._to_driver, **state.processors}
        if not convert:
            return state.positional_parameters
        given = state.additional_parameters
        return tuple(
            convert[name](given[name]) if name in convert else given[name]
            for name in state.positiontup or ()
        )

    def _found(self, prepared: Any) -> list[_Conversion]:
        """The conversions of the columns that need one."""
        found: list[_Conversion] = []
        for (name, column), attribute in zip(
            self._columns.items(), prepared.get_attributes(), strict=True
        ):
            own = column.type.dialect_impl(self.dialect)
            convert = own.result_processor(self.dialect, attribute.type.oid)
            if convert is not None:
                found.append((name, convert))
        return found


def _refused(
    connection: Connection, driver: asyncpg.Connection, text: str, error: Exception
) -> DBAPIError:
    """The error as SQLAlchemy raises it. A connection that is lost is not used again."""
    is_lost = driver.is_closed()
    if is_lost:
        connection.invalidate(error)
    kind = next(kind for own, kind in _KINDS.items() if isinstance(error, own))
    return kind(text, None, error, hide_parameters=True, connection_invalidated=is_lost)
