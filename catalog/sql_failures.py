"""Sorts errors of SQL into temporary and permanent ones.

PostgreSQL names the cause of an error by five characters, SQLSTATE; the first two are its class.
docs/decisions/0045 gives the reason for each class.
"""

from asyncpg import InterfaceError, InternalClientError, PostgresError
from asyncpg.exceptions import (
    InvalidCachedStatementError,
    UnsupportedClientFeatureError,
    UnsupportedServerFeatureError,
)
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

# A whole class is temporary if it is about the server, the network, or other transactions.
_CLASSES_THAT_PASS = {
    "08",  # connection exception; a pooler between us and the server says so too
    "40",  # transaction rollback: serialization, deadlock, completion unknown
    "53",  # insufficient resources: disk full, out of memory, too many connections
    "57",  # operator intervention: statement cancelled or timed out, shutdown, starting up
    "58",  # system error outside PostgreSQL: I/O error, a file of the server is missing
    "72",  # snapshot too old
    "F0",  # a file of the server's configuration
    "XX",  # internal error: the fault of the server, not of the statement
}
_STATES_THAT_PASS = {
    "25006",  # read only: a standby that is no primary yet
    "25P02",  # in a transaction that has failed: the next try begins another one
    "25P03",  # idle in transaction for too long
    "25P04",  # the transaction took too long
    "26000",  # prepared statement unknown: a pooler has changed the connection behind us
    "42P05",  # prepared statement exists: the same
    "55000",  # the database takes no connections now
    "55006",  # object in use
    "55P03",  # a lock was not to be had in time
}
# The server ends the session: an administrator, a shutdown, a crash of another session.
_ENDED = {"57P01", "57P02"}
# A conflict with another transaction: an immediate retry succeeds.
_CONFLICTS = {"40001", "40P01", "55P03"}
# asyncpg's InterfaceErrors are temporary, except these. A ValueError says that a value or an option
# does not fit: asyncpg sent nothing, and a retry would not help.
_REFUSED_BY_ASYNCPG = (ValueError, UnsupportedClientFeatureError, UnsupportedServerFeatureError)


def sqlstate_of(error: BaseException) -> str | None:
    """The SQLSTATE of an error of PostgreSQL, wrapped by SQLAlchemy or not; None without one."""
    state = getattr(getattr(error, "orig", error), "sqlstate", None)
    return state if isinstance(state, str) else None


def sqlstate_may_recover(state: str) -> bool:
    """Whether a retry may succeed after an error with this SQLSTATE."""
    return state[:2] in _CLASSES_THAT_PASS or state in _STATES_THAT_PASS


def took_too_long(error: BaseException) -> bool:
    """Whether the statement was cancelled by the server, an operator or the client's deadline."""
    return isinstance(error, TimeoutError) or sqlstate_of(error) == "57014"


def is_lock_conflict(error: BaseException) -> bool:
    """Whether the transaction failed only because of a conflict with another transaction."""
    return sqlstate_of(error) in _CONFLICTS


def is_connection_lost(error: DBAPIError) -> bool:
    """Whether the connection ended, so that the same statement may succeed on another one."""
    return error.connection_invalidated or sqlstate_of(error) in _ENDED


def database_may_recover(error: BaseException) -> bool:
    """Whether a retry may succeed: SQL is unreachable, restarting, locked or out of resources.

    An error of the statement or its values is permanent.
    """
    if isinstance(error, DBAPIError):
        return _wrapped_passes(error)
    if isinstance(error, InvalidCachedStatementError):
        return True  # a migration changed the table between two uses of a statement
    # asyncpg's own, where SQLAlchemy does not wrap them: while it connects, and in the recorder.
    if isinstance(error, PostgresError):
        state = sqlstate_of(error)
        return state is not None and sqlstate_may_recover(state)
    if isinstance(error, InterfaceError):
        return not isinstance(error, _REFUSED_BY_ASYNCPG)
    # (An internal client error: a statement met a connection in the middle of what was broken off.)
    return isinstance(error, InternalClientError | PoolTimeoutError | OSError | TimeoutError)


def _wrapped_passes(error: DBAPIError) -> bool:
    # SQLite's: locked, disk full, an I/O error. PostgreSQL's never come as OperationalError.
    if isinstance(error, OperationalError) or error.connection_invalidated:
        return True
    cause = getattr(error.orig, "__cause__", None)
    if isinstance(cause, InvalidCachedStatementError):
        return True
    state = sqlstate_of(error)
    return state is not None and sqlstate_may_recover(state)
