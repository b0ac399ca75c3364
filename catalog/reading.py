"""Reads without a session: statements that are made once, and that show no deleted records.

Most of the cost of a small read is that of making its statement and of the session around it. A
`Reading` is made when its module is imported, with the criteria that the session would add
(catalog.soft_deletion) in it; requests differ by its parameters alone. A `Reader` runs readings and
nothing else, so no statement without the criteria reaches the connection.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Connection, Dialect, Engine, Select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.util import greenlet_spawn

from catalog.database import Database
from catalog.driver_reading import DriverReading
from catalog.postgresql_pool import connecting_to_read
from catalog.soft_deletion import living_only, with_deleted
from catalog.sql_failures import is_connection_lost

Result = TypeVar("Result")


class Reading:
    """A SELECT of columns, with parameters. `deleted` includes deleted records.

    `query` is what a session would execute for the same rows.
    """

    def __init__(self, query: Select[*tuple[Any, ...]], *, deleted: bool = False) -> None:
        self.names = tuple(query.selected_columns.keys())
        if len(self.names) < len(query.selected_columns):
            raise ValueError(f"two columns have the same name: {self.names}")
        self.deleted = deleted
        self.query = with_deleted(query) if deleted else query
        self.statement = query if deleted else living_only(query)
        self._by_driver: DriverReading | None = None

    def by_driver(self, dialect: Dialect) -> DriverReading:
        """The same for PostgreSQL's driver; made when it is first used."""
        made = self._by_driver
        if made is None or made.dialect is not dialect:
            made = self._by_driver = DriverReading(self.statement, dialect)
        return made


class Reader:
    """Runs readings on one connection, for as long as `read` or `read_within` lasts.

    `by_driver`: the connection is PostgreSQL's, and has no transaction.
    """

    def __init__(self, connection: Connection, *, by_driver: bool = False) -> None:
        self._connection = connection
        self._by_driver = by_driver

    def rows(self, reading: Reading, /, **values: object) -> list[dict[str, Any]]:
        """Every row, by the columns' names. Raises the errors of SQL."""
        if self._by_driver:
            return reading.by_driver(self._connection.dialect).rows(self._connection, values)
        names = reading.names
        found = self._connection.execute(reading.statement, values)
        return [dict(zip(names, row, strict=True)) for row in found.all()]

    def row(self, reading: Reading, /, **values: object) -> dict[str, Any] | None:
        """The first row, or None. Raises the errors of SQL."""
        return next(iter(self.rows(reading, **values)), None)


async def read(database: Database, work: Callable[[Reader], Result]) -> Result:
    """The result of `work`, which runs readings. Raises the errors of SQL.

    On PostgreSQL each reading is by itself: `work` has no transaction. If the connection is lost,
    `work` runs once more on another one, so that no read fails because the server was restarted
    between two requests.
    """
    engine = database.engine.sync_engine
    try:
        return await greenlet_spawn(_run, engine, work, repeatable=True)
    except DBAPIError as error:
        if not is_connection_lost(error):
            raise
    return await greenlet_spawn(_run, engine, work, repeatable=False)


async def read_within(session: AsyncSession, work: Callable[[Reader], Result]) -> Result:
    """The result of `work` in the session's transaction, with what the session has flushed."""
    return await session.run_sync(lambda own: work(Reader(own.connection())))


def _run(engine: Engine, work: Callable[[Reader], Result], repeatable: bool) -> Result:
    with connecting_to_read(repeatable=repeatable):
        connection = engine.connect()
    with connection:
        return work(Reader(connection, by_driver=engine.dialect.driver == "asyncpg"))
