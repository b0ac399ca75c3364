"""The schema of this version, in an empty database: migrated once a run, copied from then on."""

import asyncio
import os
import tempfile
from pathlib import Path

import asyncpg
from sqlalchemy import make_url

from catalog.migrate import migrate
from tests.servers.handles import DATABASE
from tests.servers.postgres import TEST_DATABASES, copy_over, create_database

_IN_USE = """
SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = 'public')
    OR EXISTS (SELECT FROM pg_stat_activity
               WHERE datname = current_database() AND pid <> pg_backend_pid())
"""
_sqlite: list[bytes] = []
_postgres: dict[str, str] = {}


async def make_schema(url: str) -> None:
    """What `migrate` does, and in a fraction of its time where a test's own database is new."""
    parsed = make_url(url)
    name = str(parsed.database)
    if parsed.get_backend_name() == "sqlite":
        if await asyncio.to_thread(Path(name).exists):
            await migrate(url)
        else:
            await asyncio.to_thread(Path(name).write_bytes, await _migrated_file())
    elif DATABASE in os.environ or not name.startswith(TEST_DATABASES) or await _in_use(url):
        await migrate(url)
    else:
        await asyncio.to_thread(copy_over, url, await _migrated_database(url))


async def _in_use(url: str) -> bool:
    connection = await asyncpg.connect(url, timeout=10)
    try:
        return bool(await connection.fetchval(_IN_USE, timeout=10))
    finally:
        await connection.close()


async def _migrated_file() -> bytes:
    if not _sqlite:
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "schema.sqlite3"
            await migrate(f"sqlite:///{file}")
            _sqlite.append(file.read_bytes())
    return _sqlite[0]


async def _migrated_database(url: str) -> str:
    server = make_url(url).set(database="postgres").render_as_string(hide_password=False)
    if server not in _postgres:
        template = await asyncio.to_thread(create_database, server)
        await migrate(template)
        _postgres[server] = str(make_url(template).database)
    return _postgres[server]
