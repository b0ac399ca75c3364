"""The SQL database: PostgreSQL through asyncpg or SQLite through aiosqlite, by the same code."""

import asyncio
import os
import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Literal

import aiosqlite
from sqlalchemy import URL, Connection, event, func, make_url, select, type_coerce
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.pool import ConnectionPoolEntry

from catalog import (  # they listen to every session
    access,  # noqa: F401
    audit,  # noqa: F401
    soft_deletion,  # noqa: F401
)
from catalog.database_url import ACCEPTED, check_database_url, split_libpq
from catalog.errors import DatabaseUrlError
from catalog.models.base import Instant
from catalog.postgresql_pool import watch_pool
from catalog.session import CatalogSession

CONNECT_SECONDS = 10.0
COMMAND_SECONDS = 30.0
POOL_SIZE = 16
_IDLE_SECONDS = 60.0
# In KiB. Every connection has a cache of its own, and up to fifteen are open: with the 2 MiB that
# SQLite takes by itself, they held 30 MiB once long lists were read.
_SQLITE_CACHE = "cache_size=-500"
_DRIVERS = {
    "postgresql": "postgresql+asyncpg",
    "postgres": "postgresql+asyncpg",
    "postgresql+asyncpg": "postgresql+asyncpg",
    "sqlite": "sqlite+aiosqlite",
    "sqlite+aiosqlite": "sqlite+aiosqlite",
}
_WRITES = "catalog_writes"
_NOW = select(type_coerce(func.current_timestamp(), Instant))

SessionFactory = async_sessionmaker[AsyncSession]


@dataclass(frozen=True, kw_only=True)
class Database:
    """An engine and three kinds of session; catalog.reading reads without one.

    - `write` sessions fill the outbox (catalog.outbox). On SQLite they take the write lock at the
      beginning of their transaction, so that no transaction fails half-way.
    - `read` sessions take no lock.
    - `autocommit` sessions are for single statements, and for several that need not be consistent.
      On PostgreSQL they have no transaction, which saves two round trips.

    All of them share one pool, of POOL_SIZE connections on PostgreSQL.
    """

    engine: AsyncEngine
    dialect: Literal["postgresql", "sqlite"]
    write: SessionFactory
    read: SessionFactory
    autocommit: SessionFactory

    async def close(self) -> None:
        """Close every pooled connection."""
        await self.engine.dispose()


def open_database(url: str, *, command_timeout: float = COMMAND_SECONDS) -> Database:
    """A database for `url`. The first session that is used opens the first connection.

    `command_timeout` (seconds) bounds one statement on PostgreSQL and the wait for the write lock
    on SQLite. Raises DatabaseUrlError.
    """
    engine = create_engine(url, command_timeout=command_timeout)
    sqlite = engine.dialect.name == "sqlite"
    autocommit = engine if sqlite else engine.execution_options(isolation_level="AUTOCOMMIT")
    return Database(
        engine=engine,
        dialect="sqlite" if sqlite else "postgresql",
        write=_sessions(with_write_lock(engine)),
        read=_sessions(engine),
        autocommit=_sessions(autocommit),
    )


def create_engine(url: str, *, command_timeout: float = COMMAND_SECONDS) -> AsyncEngine:
    """Only the engine, with the same limits. Raises DatabaseUrlError."""
    parsed = _parse(url)
    if parsed.get_backend_name() == "sqlite":
        return _sqlite_engine(parsed, command_timeout)
    return _postgresql_engine(parsed, command_timeout)


def with_write_lock(engine: AsyncEngine) -> AsyncEngine:
    """The same engine, except that its transactions take SQLite's write lock when they begin."""
    return engine.execution_options(**{_WRITES: True})


async def sql_now(session: AsyncSession) -> datetime:
    """The time on the database's clock, which all processes share; aware, in UTC.

    In a transaction it is the time at which the transaction began.
    """
    now: datetime = (await session.execute(_NOW)).scalar_one()
    return now


def _sessions(engine: AsyncEngine) -> SessionFactory:
    return async_sessionmaker(
        engine, sync_session_class=CatalogSession, expire_on_commit=False, autoflush=False
    )


def _parse(url: str) -> URL:
    try:
        check_database_url(url)
    except ValueError as error:
        raise DatabaseUrlError(f"the database URL cannot be used: {error}") from None
    try:
        parsed = make_url(url)
        return parsed.set(drivername=_DRIVERS[parsed.drivername])
    except Exception:  # the parser's message may quote the URL, so it is not passed on
        raise DatabaseUrlError(f"the database URL cannot be used; {ACCEPTED}") from None


def _postgresql_engine(url: URL, command_timeout: float) -> AsyncEngine:
    query, dsn = split_libpq(dict(url.query))
    idle = max(_IDLE_SECONDS, command_timeout)
    # SQLAlchemy has a cache of its own, and readings use the driver's (catalog.driver_reading).
    cached = query.get("prepared_statement_cache_size")
    cache = {} if cached is None else {"statement_cache_size": int(cached)}
    engine = create_async_engine(
        url.set(query=query),
        hide_parameters=True,
        # No overflow: connections beyond the pool would be opened and closed again for each use.
        pool_size=POOL_SIZE,
        max_overflow=0,
        pool_timeout=CONNECT_SECONDS,
        pool_recycle=1800,
        connect_args={
            **cache,
            "dsn": dsn,
            "timeout": CONNECT_SECONDS,
            "command_timeout": command_timeout,
            "server_settings": {
                "application_name": "proximity",
                # A host that dies in a transaction would keep its locks until TCP gives up.
                "idle_in_transaction_session_timeout": str(int(idle * 1000)),
            },
        },
    )
    watch_pool(engine.sync_engine)
    return engine


def _sqlite_engine(url: URL, busy_timeout: float) -> AsyncEngine:
    engine = create_async_engine(
        url,
        hide_parameters=True,
        connect_args={"timeout": busy_timeout, "async_creator_fn": _open_sqlite},
    )

    def prepare(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
        # sqlite3 would begin transactions by itself, late and never IMMEDIATE.
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in ("foreign_keys=ON", "synchronous=NORMAL", _SQLITE_CACHE):
            cursor.execute(f"PRAGMA {pragma}")
        # The mode is stored in the file. SQLite fails at once while another connection sets the
        # mode or writes; then that connection or the next one sets it.
        with suppress(sqlite3.OperationalError):
            cursor.execute("PRAGMA journal_mode=WAL")
        cursor.close()

    event.listen(engine.sync_engine, "connect", prepare)
    event.listen(engine.sync_engine, "begin", _begin)
    return engine


def _begin(connection: Connection) -> None:
    options: dict[str, Any] = dict(connection.get_execution_options())
    connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get(_WRITES) else "BEGIN")


def _open_sqlite(path: str, **options: Any) -> aiosqlite.Connection:
    """A connection that opens when it is awaited; `options` are those of sqlite3.connect."""
    return _SqliteConnection(partial(_open_file, path, **options), iter_chunk_size=64)


def _open_file(path: str, **options: Any) -> sqlite3.Connection:
    """Create the file if it is missing, so that only its owner may read it.

    SQLite gives the files beside it the same mode. The database contains password hashes and the
    places where people were. An existing file keeps its mode.
    """
    if path != ":memory:" and not options.get("uri"):
        with suppress(OSError):  # it exists, or sqlite3 reports why it cannot be made
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    connection: sqlite3.Connection = sqlite3.connect(path, **options)
    return connection


class _SqliteConnection(aiosqlite.Connection):
    """A connection that can be stopped twice.

    If the closing of a connection is cancelled, SQLAlchemy stops the connection, and the closing,
    which goes on, stops it again. The second stop of aiosqlite 0.22 would never return, because its
    thread has ended already, and the process could not end.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._thread.daemon = True  # as SQLAlchemy sets it: no thread keeps an ended process alive
        self._is_stopping = False
        self._stopped: asyncio.Future[Any] | None = None

    def stop(self) -> "asyncio.Future[Any] | None":
        """Close the connection and end the thread. Returns the same future each time."""
        if not self._is_stopping:
            self._is_stopping = True
            self._stopped = super().stop()
        return self._stopped
