"""Checks connections of PostgreSQL when they leave the pool and when they return to it.

A connection is pinged when it leaves the pool, because the server may have restarted since. A ping
takes three round trips. The reads of catalog.reading are retried on another connection if theirs is
lost, so they skip the ping of a connection that returned less than `_TRUSTED_SECONDS` ago.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum, auto
from typing import Any

from sqlalchemy import Dialect, Engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DisconnectionError, InvalidatePoolError
from sqlalchemy.pool import ConnectionPoolEntry

_TRUSTED_SECONDS = 1.0
_RETURNED = "catalog_returned"


class _Purpose(Enum):
    SESSION = auto()
    READING = auto()  # without a transaction
    REPEATABLE_READING = auto()


_purpose: ContextVar[_Purpose] = ContextVar("purpose", default=_Purpose.SESSION)


def watch_pool(engine: Engine) -> None:
    """Check each connection of the engine's pool."""
    dialect = engine.dialect

    def taken(connection: DBAPIConnection, entry: ConnectionPoolEntry, _proxy: Any) -> None:
        purpose = _purpose.get()
        _check(dialect, connection, entry, purpose)
        if purpose is not _Purpose.SESSION:
            # As the isolation level AUTOCOMMIT, which SQLAlchemy sets more slowly.
            connection.autocommit = True

    event.listen(engine, "checkout", taken)
    event.listen(engine, "checkin", _returned)


@contextmanager
def connecting_to_read(*, repeatable: bool) -> Iterator[None]:
    """Connections that leave the pool within this context have no transaction.

    `repeatable`: the read is retried on another connection if this one is lost.
    """
    purpose = _Purpose.REPEATABLE_READING if repeatable else _Purpose.READING
    before = _purpose.set(purpose)
    try:
        yield
    finally:
        _purpose.reset(before)


def _check(
    dialect: Dialect, connection: DBAPIConnection, entry: ConnectionPoolEntry, purpose: _Purpose
) -> None:
    """Raise DisconnectionError if the connection is lost: the pool opens another one."""
    returned = entry.info.get(_RETURNED)
    if returned is None:  # it has just been opened
        return
    trusted = time.monotonic() - returned < _TRUSTED_SECONDS
    if purpose is not _Purpose.REPEATABLE_READING or not trusted:
        _ping(dialect, connection)
    # No I/O: whether the event loop has seen that the server closed the connection.
    elif connection.driver_connection.is_closed():
        raise DisconnectionError("closed by the server")


def _ping(dialect: Dialect, connection: DBAPIConnection) -> None:
    """As SQLAlchemy's own `pool_pre_ping`: if it fails, no pooled connection is used again."""
    try:
        dialect.do_ping(connection)
    except dialect.loaded_dbapi.Error as error:
        if not dialect.is_disconnect(error, connection, None):
            raise
        raise InvalidatePoolError("no answer to a ping") from error


def _returned(connection: DBAPIConnection | None, entry: ConnectionPoolEntry) -> None:
    if connection is None:
        return
    entry.info[_RETURNED] = time.monotonic()
    connection.autocommit = False
    # A connection whose BEGIN failed is not used again: asyncpg keeps the transaction as its
    # outermost all the same, and would make the next one a savepoint within it, which PostgreSQL
    # refuses, each time.
    if getattr(connection.driver_connection, "_top_xact", None) is not None:
        entry.invalidate(soft=True)
