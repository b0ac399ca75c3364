"""The SQL database: PostgreSQL through asyncpg or SQLite through aiosqlite, by the same code."""

import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import URL, Connection, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.pool import ConnectionPoolEntry

from catalog import (  # their listeners hold for every session
    access,  # noqa: F401
    audit,  # noqa: F401
    soft_deletion,  # noqa: F401
)
from catalog.database_url import ACCEPTED, check_database_url, split_libpq
from catalog.outbox import CatalogSession
from catalog.sqlite_connection import open_sqlite

CONNECT_SECONDS = 10.0
COMMAND_SECONDS = 30.0
POOL_SIZE = 16
_IDLE_SECONDS = 60.0
_DRIVERS = {
    "postgresql": "postgresql+asyncpg",
    "postgres": "postgresql+asyncpg",
    "postgresql+asyncpg": "postgresql+asyncpg",
    "sqlite": "sqlite+aiosqlite",
    "sqlite+aiosqlite": "sqlite+aiosqlite",
}
_WRITES = "catalog_writes"

SessionFactory = async_sessionmaker[AsyncSession]


class DatabaseUrlError(ValueError):
    """A database URL cannot be used. The message never holds the URL: it may carry a password."""


@dataclass(frozen=True, kw_only=True)
class Database:
    """An engine and its kinds of session.

    `write` sessions fill the outbox (catalog.outbox) and, on SQLite, take the write lock when
    their transaction begins, so that it never fails half-way; `read` sessions take no lock.
    `autocommit` sessions are for one statement, or several that need not agree: on PostgreSQL they
    have no transaction, which saves two round trips.
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
    """A database for `url`; nothing is opened until the first session is used.

    `command_timeout` (seconds) bounds one statement on PostgreSQL and the wait for the write
    lock on SQLite. Raises DatabaseUrlError.
    """
    engine = create_engine(url, command_timeout=command_timeout)
    writing = engine.execution_options(**{_WRITES: True})
    return Database(
        engine=engine,
        dialect="sqlite" if engine.dialect.name == "sqlite" else "postgresql",
        write=_sessions(writing),
        read=_sessions(engine),
        autocommit=_sessions(_without_transactions(engine)),
    )


def create_engine(url: str, *, command_timeout: float = COMMAND_SECONDS) -> AsyncEngine:
    """The engine alone, with the same limits. Raises DatabaseUrlError."""
    parsed = _parse(url)
    if parsed.get_backend_name() == "sqlite":
        return _sqlite_engine(parsed, command_timeout)
    return _postgresql_engine(parsed, command_timeout)


def writing(engine: AsyncEngine) -> AsyncEngine:
    """The same engine, whose transactions take SQLite's write lock when they begin."""
    return engine.execution_options(**{_WRITES: True})


def _without_transactions(engine: AsyncEngine) -> AsyncEngine:
    if engine.dialect.name == "sqlite":
        return engine
    return engine.execution_options(isolation_level="AUTOCOMMIT")


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
    except Exception:  # whatever the parser says may quote the URL, so it goes no further
        raise DatabaseUrlError(f"the database URL cannot be used; {ACCEPTED}") from None


def _postgresql_engine(url: URL, command_timeout: float) -> AsyncEngine:
    query, dsn = split_libpq(dict(url.query))
    idle = max(_IDLE_SECONDS, command_timeout)
    return create_async_engine(
        url.set(query=query),
        hide_parameters=True,
        pool_pre_ping=True,
        # No overflow: connections beyond the pool would be opened and closed again for each use.
        pool_size=POOL_SIZE,
        max_overflow=0,
        pool_timeout=CONNECT_SECONDS,
        pool_recycle=1800,
        connect_args={
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


def _sqlite_engine(url: URL, busy_timeout: float) -> AsyncEngine:
    engine = create_async_engine(
        url,
        hide_parameters=True,
        connect_args={"timeout": busy_timeout, "async_creator_fn": open_sqlite},
    )

    def prepare(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
        # sqlite3 would begin transactions by itself, late and never IMMEDIATE.
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in ("foreign_keys=ON", "synchronous=NORMAL"):
            cursor.execute(f"PRAGMA {pragma}")
        # Kept in the file. SQLite does not wait for another connection that is just doing the
        # same, or writing: then that one has done it, or the next connection will.
        with suppress(sqlite3.OperationalError):
            cursor.execute("PRAGMA journal_mode=WAL")
        cursor.close()

    event.listen(engine.sync_engine, "connect", prepare)
    event.listen(engine.sync_engine, "begin", _begin)
    return engine


def _begin(connection: Connection) -> None:
    options: dict[str, Any] = dict(connection.get_execution_options())
    connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get(_WRITES) else "BEGIN")
