"""Databases, and the schema of this version in an empty one."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import make_url

from catalog.database import Database, open_database
from catalog.migrate import migrate
from tests.servers.missing import DATABASE
from tests.servers.postgres import create_database, drop_database, execute

on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
on_postgres = pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
_sqlite: list[bytes] = []
_copied: set[str] = set()
# The first database of each server of PostgreSQL.
_templates: dict[str, str] = {}


async def make_schema(url: str) -> None:
    """What `migrate` does; a new database is a copy of the first one, which takes less time."""
    parsed = make_url(url)
    file = Path(str(parsed.database))
    is_sqlite = parsed.get_backend_name() == "sqlite"
    # On a server that is not the run's own no first database is left behind.
    copying = is_sqlite or DATABASE not in os.environ
    if not copying or url in _copied or await asyncio.to_thread(file.exists):
        await migrate(url)
        return
    if not is_sqlite:
        admin = parsed.set(database="postgres").render_as_string(hide_password=False)
        if admin not in _templates:
            _templates[admin] = create_database(admin)
            await migrate(_templates[admin])
        drop_database(admin, url)
        template = make_url(_templates[admin]).database
        execute(admin, f'CREATE DATABASE "{parsed.database}" TEMPLATE "{template}"')
        _copied.add(url)
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
