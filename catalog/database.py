"""The SQL database: PostgreSQL through asyncpg or SQLite through aiosqlite, by the same code.

Also sorts errors of SQL into temporary and permanent ones. PostgreSQL names the cause of an error
by five characters, SQLSTATE; the first two are its class.
"""

import functools
import os
import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from asyncpg import InterfaceError, InternalClientError, PostgresError
from asyncpg.exceptions import (
    InvalidCachedStatementError,
    UnsupportedClientFeatureError,
    UnsupportedServerFeatureError,
)
from sqlalchemy import URL, Connection, event, make_url
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.pool import ConnectionPoolEntry

from catalog.errors import DatabaseUrlError
from catalog.session import CatalogSession

CONNECT_SECONDS = 10.0
COMMAND_SECONDS = 30.0
POOL_SIZE = 16
_IDLE_SECONDS = 60.0
_ACCEPTED = (
    "accepted: postgresql://user:password@host:port/name[?sslmode=verify-full&sslrootcert=FILE] "
    "or sqlite:///path/of/a/file"
)
_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
_PARAMETERS = (  # libpq's, which asyncpg reads too
    *_FILES,
    *("sslmode", "sslpassword", "sslnegotiation"),
    *("ssl_min_protocol_version", "ssl_max_protocol_version"),
    *("host", "port", "target_session_attrs", "application_name", "options"),
)
_WRITES = "catalog_writes"

SessionFactory = async_sessionmaker[AsyncSession]


@dataclass(frozen=True, kw_only=True)
class Database:
    """An engine and two kinds of session.

    - `write` sessions fill the outbox (catalog.session). On SQLite they take the write lock at the
      beginning of their transaction, so that no transaction fails half-way.
    - `read` sessions take no lock.

    Both share one pool, of at most `pool_size` connections on PostgreSQL.
    """

    engine: AsyncEngine
    dialect: Literal["postgresql", "sqlite"]
    write: SessionFactory
    read: SessionFactory

    async def close(self) -> None:
        """Close every pooled connection."""
        await self.engine.dispose()


def open_database(
    url: str, *, command_timeout: float = COMMAND_SECONDS, pool_size: int = POOL_SIZE
) -> Database:
    """A database for `url`. The first session that is used opens the first connection.

    `command_timeout` (seconds) bounds one statement on PostgreSQL and the wait for the write lock
    on SQLite; `pool_size` bounds the connections to PostgreSQL. Raises DatabaseUrlError.
    """
    parsed = parse_database_url(url)
    is_sqlite = parsed.get_backend_name() == "sqlite"
    if is_sqlite:
        engine = _sqlite_engine(parsed, command_timeout)
    else:
        engine = _postgresql_engine(parsed, command_timeout, pool_size)
    return Database(
        engine=engine,
        dialect="sqlite" if is_sqlite else "postgresql",
        write=_sessions(with_write_lock(engine)),
        read=_sessions(engine),
    )


def with_write_lock(engine: AsyncEngine) -> AsyncEngine:
    """The same engine, except that its transactions take SQLite's write lock when they begin."""
    return engine.execution_options(**{_WRITES: True})


def _sessions(engine: AsyncEngine) -> SessionFactory:
    return async_sessionmaker(
        engine, sync_session_class=CatalogSession, expire_on_commit=False, autoflush=False
    )


def parse_database_url(url: str) -> URL:
    """The parts of DATABASE_URL. Raises DatabaseUrlError if it cannot work; nothing is opened."""
    try:
        parsed = make_url(url)
    except Exception:  # the parser's message may quote the URL, so it is not passed on
        raise DatabaseUrlError(f"cannot be read; {_ACCEPTED}") from None
    kind = parsed.drivername.partition("+")[0]
    if kind == "sqlite":
        if parsed.database in (None, "", ":memory:"):  # each connection would have its own tables
            raise DatabaseUrlError(f"names no file; {_ACCEPTED}")
        return parsed.set(drivername="sqlite+aiosqlite")
    if kind not in ("postgresql", "postgres"):
        raise DatabaseUrlError(f"begins with neither postgresql:// nor sqlite:///; {_ACCEPTED}")
    if "@" in (parsed.host or ""):
        raise DatabaseUrlError("has more than one @: write %40 for one of the password")
    return parsed.set(drivername="postgresql", query=_checked_query(parsed))


def _checked_query(url: URL) -> dict[str, str]:
    query = {name: values[-1] for name, values in url.normalized_query.items()}
    if "ssl" in query:
        query.setdefault("sslmode", query.pop("ssl"))
    for name, value in query.items():
        if name not in _PARAMETERS:
            known = ", ".join(sorted(_PARAMETERS))
            raise DatabaseUrlError(f"the parameter {name[:40]!r} is not known; accepted: {known}")
        if name in _FILES and not Path(value).is_file():
            raise DatabaseUrlError(f"{name} {value}: no such file")
    mode = query.get("sslmode", "prefer")
    if mode not in _MODES:
        raise DatabaseUrlError(f"sslmode is none of {', '.join(_MODES)}")
    if "sslrootcert" in query and mode in ("allow", "prefer", "require"):
        # An authority that is named is always used, as libpq does for sslmode=require.
        query["sslmode"] = "verify-ca"
    return query


def _postgresql_engine(url: URL, command_timeout: float, pool_size: int) -> AsyncEngine:
    idle = max(_IDLE_SECONDS, command_timeout)
    engine = create_async_engine(
        "postgresql+asyncpg://",  # asyncpg reads the URL itself, with libpq's parameters
        hide_parameters=True,
        pool_pre_ping=True,
        # No overflow: connections beyond the pool would be opened and closed again for each use.
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=CONNECT_SECONDS,
        pool_recycle=1800,
        connect_args={
            "dsn": url.render_as_string(hide_password=False),
            "timeout": CONNECT_SECONDS,
            "command_timeout": command_timeout,
            "server_settings": {
                "application_name": "proximity",
                # A host that dies in a transaction would keep its locks until TCP gives up.
                "idle_in_transaction_session_timeout": str(int(idle * 1000)),
            },
        },
    )
    event.listen(engine.sync_engine, "handle_error", _drop_interrupted)
    return engine


def _drop_interrupted(context: ExceptionContext) -> None:
    """Close the connection of a statement that was cut off: its state is unknown.

    After a BEGIN that was cut off asyncpg believes that a transaction stands, and would make each
    later one a savepoint in it, which PostgreSQL refuses.
    """
    error = context.original_exception
    if took_too_long(error) or _is_interrupted(_cause_of(error)):
        context.is_disconnect = True
        context.invalidate_pool_on_disconnect = False


def _sqlite_engine(url: URL, busy_timeout: float) -> AsyncEngine:
    engine = create_async_engine(
        url,
        hide_parameters=True,
        connect_args={"timeout": busy_timeout, "iter_chunk_size": 64},
    )

    def create(*_: object) -> None:
        _create_private(str(url.database))

    def prepare(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
        # sqlite3 would begin transactions by itself, late and never IMMEDIATE.
        connection.isolation_level = None
        # A connection whose closing is cancelled is stopped twice. The second stop of aiosqlite
        # 0.22 would never return, because its thread has ended.
        driver: Any = connection.driver_connection
        driver.stop = functools.cache(driver.stop)
        cursor = connection.cursor()
        for pragma in ("foreign_keys=ON", "synchronous=NORMAL"):
            cursor.execute(f"PRAGMA {pragma}")
        # The mode is stored in the file. SQLite fails at once while another connection sets the
        # mode or writes; then that connection or the next one sets it.
        with suppress(sqlite3.OperationalError):
            cursor.execute("PRAGMA journal_mode=WAL")
        cursor.close()

    event.listen(engine.sync_engine, "do_connect", create)
    event.listen(engine.sync_engine, "connect", prepare)
    event.listen(engine.sync_engine, "begin", _begin)
    return engine


def _begin(connection: Connection) -> None:
    options: dict[str, Any] = dict(connection.get_execution_options())
    connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get(_WRITES) else "BEGIN")


def _create_private(path: str) -> None:
    """Create the file if it is missing, so that only its owner may read it.

    SQLite gives the files beside it the same mode. The database contains password hashes and the
    places where people were. An existing file keeps its mode.
    """
    with suppress(OSError):  # it exists, or sqlite3 reports why it cannot be made
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


# The beginnings of states that are about the statement, its values or the connection's settings.
# All others are about the server, the network, or other transactions.
_PERMANENT_STATES = ("0A", "21", "22", "23", "28", "3D", "3F", "42", "54", "P0")
_STATEMENT_EXISTS = "42P05"  # a pooler has changed the connection behind us
# asyncpg's InterfaceErrors are temporary, except these. A ValueError says that a value or an option
# does not fit: asyncpg sent nothing, and a retry would not help.
_REFUSED_BY_ASYNCPG = (ValueError, UnsupportedClientFeatureError, UnsupportedServerFeatureError)


def sqlstate_of(error: BaseException) -> str | None:
    """The SQLSTATE of an error of PostgreSQL, wrapped by SQLAlchemy or not; None without one."""
    state = getattr(getattr(error, "orig", error), "sqlstate", None)
    return state if isinstance(state, str) else None


def took_too_long(error: BaseException) -> bool:
    """Whether the statement was cancelled by the server, an operator or the client's deadline."""
    return isinstance(error, TimeoutError) or sqlstate_of(error) == "57014"


def database_may_recover(error: BaseException) -> bool:
    """Whether a retry may succeed: SQL is unreachable, restarting, locked or out of resources.

    An error of the statement or its values is permanent.
    """
    if isinstance(error, DBAPIError):
        # SQLite's: locked, disk full, an I/O error. PostgreSQL's never come as OperationalError.
        if isinstance(error, OperationalError) or error.connection_invalidated:
            return True
        cause = _cause_of(error.orig)
        return cause is not None and database_may_recover(cause)
    if isinstance(error, InvalidCachedStatementError):
        return True  # a migration changed the table between two uses of a statement
    if isinstance(error, PostgresError):
        state = sqlstate_of(error) or ""
        return state == _STATEMENT_EXISTS or not state.startswith(_PERMANENT_STATES)
    return _is_interrupted(error) or isinstance(error, PoolTimeoutError | OSError | TimeoutError)


def _cause_of(error: BaseException | None) -> BaseException | None:
    """What asyncpg raised, which SQLAlchemy wraps twice."""
    return (error and error.__cause__) or error


def _is_interrupted(error: BaseException | None) -> bool:
    """Whether asyncpg refuses a connection whose last statement was cut off, or that is closed."""
    return isinstance(error, InterfaceError | InternalClientError) and not isinstance(
        error, _REFUSED_BY_ASYNCPG
    )
