"""Migrating gives the tables of the models, on both databases, and loses nothing."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, select, text

from catalog.database import Database, open_database
from catalog.errors import MigrationError
from catalog.migrate import migrate, pending
from catalog.models import Base, IndexState
from tests.catalog.newer_version import add_newer_version
from tests.catalog.records import Records

HISTORY = ["0001"]


async def test_migrations_and_models_agree(database: Database):
    def differences(connection: Connection) -> list[Any]:
        options = {
            "compare_type": True,
            "compare_server_default": connection.dialect.name == "postgresql",
        }
        context = MigrationContext.configure(connection, opts=options)
        return [*compare_metadata(context, Base.metadata)]

    async with database.engine.connect() as connection:
        assert await connection.run_sync(differences) == []


async def test_migrators_at_once(empty_database_url: str):
    database = open_database(empty_database_url)
    assert await pending(database.engine) == HISTORY
    done = await asyncio.gather(*(migrate(empty_database_url) for _ in range(4)))
    assert sorted(done) == [[], [], [], HISTORY]
    assert await pending(database.engine) == []
    async with database.read() as session:
        states = (await session.scalars(select(IndexState))).all()
    await database.close()
    assert [state.generation for state in states] == [0]


async def test_a_migration_does_not_wait_for_a_lock_for_ever(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Behind a migration that waits, all who need the table would wait as well."""
    await migrate(postgres_url)
    add_newer_version(monkeypatch, tmp_path / "newer")
    monkeypatch.setattr("catalog.migrate._LOCK_SECONDS", 1)
    engine = open_database(postgres_url).engine
    async with engine.begin() as connection:
        await connection.execute(text("LOCK TABLE campaign IN ACCESS SHARE MODE"))
        with pytest.raises(MigrationError, match="held a lock on a table for 1 s"):
            await migrate(postgres_url)
    await engine.dispose()
    assert await migrate(postgres_url) == ["0002"]


async def test_a_migration_keeps_what_is_there(
    database: Database,
    database_url: str,
    records: Records,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    async with database.write.begin() as session:
        venue = records.venue(records.company())
        beacon = records.beacon(venue)
        session.add_all([beacon, records.campaign(venue, beacons=[beacon])])
    before = await _content(database)
    with monkeypatch.context() as newer:
        add_newer_version(newer, tmp_path / "newer")
        assert await pending(database.engine) == ["0002"]
        assert await migrate(database_url) == ["0002"]
    after = await _content(database)
    assert [row.pop("weight") for row in after["campaign"]] == [5]
    assert after == before
    # (That processes of this version go on is in tests/system/test_upgrade.py.)
    assert await pending(database.engine) == []
    assert await migrate(database_url) == []


async def _content(database: Database) -> dict[str, list[dict[str, Any]]]:
    await database.engine.dispose()  # its prepared statements are stale
    content = {}
    async with database.engine.connect() as connection:
        for table in Base.metadata.tables:
            rows = (await connection.exec_driver_sql(f"SELECT * FROM {table}")).mappings()
            content[table] = sorted((dict(row) for row in rows), key=repr)
    return content
