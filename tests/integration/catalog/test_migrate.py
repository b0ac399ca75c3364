"""The migrations lead to the models, on both databases, also with concurrent migrations."""

import asyncio
from pathlib import Path
from typing import Any

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, select, text

from catalog import migrations
from catalog.database import Database, create_engine, open_database
from catalog.migrate import migrate, pending
from catalog.models import Base, Company, IndexState
from tests.integration.catalog.records import Records

VERSIONS = Path(migrations.__path__[0]) / "versions"
HISTORY = sorted(path.name.partition("_")[0] for path in VERSIONS.glob("0*.py"))


async def test_migrations_and_models_agree(database: Database):
    def differences(connection: Connection) -> list:
        options = {"compare_type": True, "include_object": _is_no_partition}
        context = MigrationContext.configure(connection, opts=options)
        return list(compare_metadata(context, Base.metadata))

    async with database.engine.connect() as connection:
        assert await connection.run_sync(differences) == []


async def test_pages_are_filled_as_the_models_say(postgres_url: str):
    """Alembic does not compare the settings of tables."""
    await migrate(postgres_url)
    database = open_database(postgres_url)
    statement = "SELECT relname, reloptions FROM pg_class WHERE reloptions IS NOT NULL"
    async with database.read() as session:
        found = {row.relname: row.reloptions for row in await session.execute(text(statement))}
    await database.close()
    of_models = {
        table.name: [f"{key}={value}" for key, value in options.items()]
        for table in Base.metadata.sorted_tables
        if (options := table.dialect_options["postgresql"]["with"])
    }
    assert {name: found.get(name) for name in of_models} == of_models
    assert "device" in of_models


def _is_no_partition(_object: Any, name: str | None, *_: Any) -> bool:
    return "_default" not in (name or "")


async def test_pending_until_migrated(database_url: str):
    assert await pending(database_url) == HISTORY
    assert await migrate(database_url) == HISTORY
    assert await pending(database_url) == []
    assert await migrate(database_url) == []


async def test_tables_of_a_newer_version_are_left_alone(database_url: str):
    """A process of the previous version starts again in the middle of an upgrade."""
    await migrate(database_url)
    engine = create_engine(database_url)
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = 'of-tomorrow'"))
    await engine.dispose()
    assert await pending(database_url) == []
    assert await migrate(database_url) == []


async def test_migrators_at_once(database_url: str):
    done = await asyncio.gather(*(migrate(database_url) for _ in range(4)))
    assert sorted(done) == [[], [], [], HISTORY]
    database = open_database(database_url)
    async with database.read() as session:
        states = (await session.scalars(select(IndexState))).all()
    await database.close()
    assert [state.generation for state in states] == [0]


async def test_a_failed_migration_changes_nothing(database_url: str):
    engine = create_engine(database_url)
    async with engine.begin() as connection:
        # The last table of the step is in its way.
        await connection.run_sync(Base.metadata.tables["index_state"].create)
    failed = False
    try:
        await migrate(database_url)
    except Exception as error:  # the driver's own, one a database
        failed = "index_state" in str(error)
    assert failed
    async with engine.connect() as connection:
        tables = await connection.run_sync(lambda c: c.dialect.get_table_names(c))
    await engine.dispose()
    assert tables == ["index_state"]


async def test_rows_go_with_what_they_belong_to(database: Database, records: Records):
    async with database.write.begin() as session:
        company = records.company()
        venue = records.venue(company)
        tag = records.tag(company)
        beacon = records.beacon(venue, tags=[tag])
        campaign = records.campaign(venue, beacons=[beacon], tags=[tag])
        session.add_all([beacon, campaign, records.connector(company)])
    async with database.write.begin() as session:
        await session.delete(await session.get_one(Company, company.id))
    async with database.read() as session:
        for table in Base.metadata.sorted_tables:
            if table.name not in ("access_state", "index_state", "outbox"):
                assert (await session.execute(select(table))).all() == [], table.name
