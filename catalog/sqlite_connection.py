"""A connection to SQLite that can be told to stop twice."""

import asyncio
import os
import sqlite3
from contextlib import suppress
from functools import partial
from typing import Any

import aiosqlite


def open_sqlite(path: str, **options: Any) -> aiosqlite.Connection:
    """A connection that opens when it is awaited; `options` are those of sqlite3.connect."""
    return _Connection(partial(_connect, path, **options), iter_chunk_size=64)


def _connect(path: str, **options: Any) -> sqlite3.Connection:
    """A file that is made here is its owner's alone, as are SQLite's files beside it: it holds
    hashes of passwords, and who was where. One that is there keeps the mode that it has."""
    if path != ":memory:" and not options.get("uri"):
        with suppress(OSError):  # it is there; or it cannot be made, which SQLite says
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    connection: sqlite3.Connection = sqlite3.connect(path, **options)
    return connection


class _Connection(aiosqlite.Connection):
    """Stops once.

    SQLAlchemy tells a connection to stop when its closing is cancelled, and the closing, which
    goes on behind that, tells it again. aiosqlite 0.22 would wait for ever for the second stop: its
    thread has ended with the first, and with the task that waits hangs the end of the process.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._thread.daemon = True  # as SQLAlchemy has it: no thread keeps an ended process alive
        self._told_to_stop = False
        self._stopped: asyncio.Future[Any] | None = None

    def stop(self) -> "asyncio.Future[Any] | None":
        """Close and end the thread; what to wait for, the same each time."""
        if not self._told_to_stop:
            self._told_to_stop = True
            self._stopped = super().stop()
        return self._stopped
