"""Databases, and the schema of this version in an empty one."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import make_url

from catalog.database import Database, open_database
from catalog.migrate import migrate

on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
on_postgres = pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
_sqlite: list[bytes] = []


async def make_schema(url: str) -> None:
    """What `migrate` does; a new file of SQLite is a copy of the first one, which takes no time."""
    parsed = make_url(url)
    file = Path(str(parsed.database))
    if parsed.get_backend_name() != "sqlite" or await asyncio.to_thread(file.exists):
        await migrate(url)
        return
    if not _sqlite:
        with tempfile.TemporaryDirectory() as directory:
            first = Path(directory) / "schema.sqlite3"
            await migrate(f"sqlite:///{first}")
            _sqlite.append(first.read_bytes())
    await asyncio.to_thread(file.write_bytes, _sqlite[0])


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Database]:
    """A database that is closed at the end of the context."""
    database = open_database(url)
    try:
        yield database
    finally:
        await database.close()


@asynccontextmanager
async def migrated(url: str) -> AsyncIterator[Database]:
    """The same, with the schema of this version."""
    await make_schema(url)
    async with opened(url) as database:
        yield database
