"""A catalog of an earlier version is upgraded: nothing is lost, and no id is given again."""

from collections.abc import AsyncIterator, Collection
from typing import Any

import pytest
from alembic import command
from sqlalchemy import Connection, inspect
from sqlalchemy.ext.asyncio import AsyncEngine

from catalog.database import create_engine, open_database, with_write_lock
from catalog.errors import MigrationError
from catalog.migrate import alembic_config, migrate
from catalog.models import Base, Beacon, Campaign, Company, Device, Venue
from tests.integration.catalog.records import NOON, UUID, Records

BEFORE = "0004"
NOW = "2026-11-20 12:00:00+00:00"
FILLED = (
    "INSERT INTO company (id, name, active, create_on) VALUES (1, 'a:b', true, :now), "
    "(2, 'beta', false, :now)",
    "INSERT INTO account (id, company_id, email, password_hash, active, permission, create_on) "
    "VALUES (4, 1, 'ada@example.org', '-', true, '{\"crm\": 2}', :now)",
    "INSERT INTO session (id, account_id, token_hash, create_on, valid) "
    "VALUES (8, 4, 'aa', :now, :now)",
    "INSERT INTO application (id, company_id, name, type, api_key, api_id, active, expire_on) "
    "VALUES (3, 1, 'app', 'ios', 'key', '', true, :now)",
    "INSERT INTO connector (id, company_id, name, url, method, auth, parameters) "
    "VALUES (6, 2, 'c', 'https://example.org', 'GET', 'get', '-')",
    "INSERT INTO device (id, company_id, udid, nb_beacon, nb_campaign, test, create_on, update_on) "
    "VALUES (10, 1, 'phone', 7, 3, false, :now, :now)",
    "INSERT INTO venue (id, company_id, name, address, active, time_zone) "
    "VALUES (1, 1, 'Hall', '1 Square', true, 'Europe/Paris'), (2, 2, 'Shop', '-', true, NULL)",
    "INSERT INTO tag (id, company_id, name) VALUES (5, 1, 'door')",
    "INSERT INTO beacon (id, venue_id, name, uuid, major, minor, active, proximity) "
    f"VALUES (1, 1, 'in', '{UUID}', 1, 1, true, 'far'), "
    f"(2, 2, 'out', '{UUID}', 1, 2, true, 'near')",
    "INSERT INTO beacon_tag (beacon_id, tag_id) VALUES (1, 5)",
    "INSERT INTO geofence (id, venue_id, name, longitude, latitude, radius, active) "
    "VALUES (9, 1, 'park', 1.5, 2.5, 100, true)",
    "INSERT INTO campaign (id, venue_id, name, push, title, format, html, cache, delay, start_at, "
    "start_offset, end_at, end_offset, start_minute, end_minute, active, weekdays, nfcs, qrcodes) "
    "VALUES (1, 1, 'Welcome', 'p', 't', 'html', '<p>', 'day', 86400, :now, 60, :now, 0, 0, 1440, "
    "true, 127, '[1]', '[]')",
    "INSERT INTO campaign_beacon (campaign_id, beacon_id) VALUES (1, 1)",
    "INSERT INTO campaign_geofence (campaign_id, geofence_id) VALUES (1, 9)",
    "INSERT INTO campaign_tag (campaign_id, tag_id) VALUES (1, 5)",
    "INSERT INTO detection_trace (device_id, venue_id, beacon_id, status, create_on) "
    "VALUES (10, 1, 1, 'near', :now), (77, 31, 41, 'far', :now)",
    "INSERT INTO authentication_trace (device_id, application_id, create_on) VALUES (10, 52, :now)",
    "INSERT INTO reception (notification, device_id, campaign_id, create_on) "
    "VALUES ('0190a5d2000000000000000000000001', 10, 61, :now)",
    "INSERT INTO statistic (day, kind, ref, venue_id, detections, devices, notifications) "
    "VALUES ('2026-11-20', 'venue', 33, 33, 1, 1, 1), ('2026-11-20', 'beacon', 40, 33, 1, 1, 1), "
    "('2026-11-20', 'campaign', 62, 33, 1, 1, 1)",
)
# Tables whose indexes and constraints later versions change on purpose.
CHANGED_SINCE = ("beacon", "alembic_version", "reception", "presence")
# The highest ids that rows of deleted records still name.
NAMED = {Venue: 33, Beacon: 41, Campaign: 62, Device: 77}


@pytest.fixture
async def old(database_url: str) -> AsyncIterator[AsyncEngine]:
    """A database of the version before, with a row in every table that people fill."""
    engine = with_write_lock(create_engine(database_url))
    async with engine.begin() as connection:
        await connection.run_sync(_to, BEFORE)
        for statement in FILLED:
            await connection.exec_driver_sql(statement.replace(":now", f"'{NOW}'"))
        if connection.dialect.name == "postgresql":
            for model in (Company, Venue, Beacon, Campaign):
                counted = f"SELECT setval('{model.__tablename__}_id_seq', 1000)"
                await connection.exec_driver_sql(counted)
    yield engine
    await engine.dispose()


def _to(connection: Connection, revision: str, way: Any = command.upgrade) -> None:
    config = alembic_config()
    config.attributes["connection"] = connection
    way(config, revision)


async def _content(engine: AsyncEngine) -> dict[str, list[dict[str, Any]]]:
    await engine.dispose()  # what a connection has prepared is not good any more
    async with engine.connect() as connection:
        tables = await connection.run_sync(lambda c: inspect(c).get_table_names())
        content = {}
        for table in sorted(set(tables) & set(Base.metadata.tables)):
            rows = (await connection.exec_driver_sql(f"SELECT * FROM {table}")).mappings()
            content[table] = sorted((dict(row) for row in rows), key=repr)
    for row in content["index_state"]:
        del row["catalog"]  # a later version gives it a new one, so that the index is built again
    return content


async def _constraints(engine: AsyncEngine, tables: Collection[str]) -> dict[str, Any]:
    def read(connection: Connection) -> dict[str, Any]:
        inspector = inspect(connection)
        return {
            table: (
                sorted(map(repr, inspector.get_indexes(table))),
                sorted(map(repr, inspector.get_unique_constraints(table))),
                sorted(map(repr, inspector.get_check_constraints(table))),
                sorted(map(repr, inspector.get_foreign_keys(table))),
            )
            for table in tables
            if table not in CHANGED_SINCE
        }

    async with engine.connect() as connection:
        return await connection.run_sync(read)


async def test_nothing_is_lost(old: AsyncEngine, database_url: str):
    before = await _content(old)
    rules = await _constraints(old, before)
    empty = {table for table, rows in before.items() if not rows}
    assert empty == {"outbox", "presence", "recorder_offset", "statistic_device"}
    await migrate(database_url)
    after = await _content(old)
    for table, rows in before.items():
        assert [{k: v for k, v in row.items() if k in rows[0]} for row in after[table]] == rows, (
            table
        )
    assert await _constraints(old, before) == rules


async def test_no_id_is_used_again(old: AsyncEngine, database_url: str, records: Records):
    await migrate(database_url)
    database = open_database(database_url)
    async with database.write.begin() as session:
        company = records.company()
        venue = records.venue(company)
        device = Device(company=company, udid="new", create_on=NOON, update_on=NOON)
        made: list[Any] = [venue, records.beacon(venue), records.campaign(venue), device]
        session.add_all(made)
        await session.flush()
        if database.dialect == "sqlite":  # PostgreSQL's sequences have counted all along
            assert {type(record): record.id for record in made} == {
                model: highest + 1 for model, highest in NAMED.items()
            }
    await database.close()


async def test_the_records_of_a_venue_are_still_deleted_with_it(
    old: AsyncEngine, database_url: str
):
    await migrate(database_url)
    async with old.begin() as connection:
        await connection.exec_driver_sql("DELETE FROM company WHERE id = 1")
    left = await _content(old)
    removed = ("account", "session", "application", "device", "tag", "geofence", "campaign")
    assert [table for table in (*removed, "campaign_beacon", "beacon_tag") if left[table]] == []
    assert [row["name"] for row in left["beacon"]] == ["out"]


async def test_back_and_forth(old: AsyncEngine, database_url: str):
    before = await _content(old)
    await migrate(database_url)
    async with old.begin() as connection:
        await connection.exec_driver_sql(
            "UPDATE beacon SET deleted_at = '2026-11-21 00:00:00+00:00' WHERE id = 2"
        )
        await connection.run_sync(_to, BEFORE, command.downgrade)
    rows = await _content(old)
    before["beacon"] = [row for row in before["beacon"] if row["id"] == 1]
    assert {t: r for t, r in rows.items() if t != "alembic_version"} == before
    await migrate(database_url)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_broken_tie_stops_the_upgrade(old: AsyncEngine, database_url: str):
    async with old.connect() as connection:
        raw: Any = (await connection.get_raw_connection()).driver_connection
        await raw.execute("PRAGMA foreign_keys=OFF")
        await raw.execute("DELETE FROM tag WHERE id = 5")
    before = await _content(old)
    with pytest.raises(MigrationError, match="would be left without its tag"):
        await migrate(database_url)
    assert await _content(old) == before


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_with_foreign_keys_on_it_would_empty_tables(old: AsyncEngine):
    before = await _content(old)
    with pytest.raises(ValueError, match="run: proximity migrate"):
        async with old.begin() as connection:
            await connection.run_sync(_to, "0005")
    assert await _content(old) == before


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_every_table_counts_its_ids(old: AsyncEngine, database_url: str):
    await migrate(database_url)
    async with old.connect() as connection:
        made = await connection.exec_driver_sql("SELECT name, sql FROM sqlite_master")
        rows: list[Any] = list(made)
    tables = {name: sql for name, sql in rows if (sql or "").startswith("CREATE TABLE")}
    for table in Base.metadata.tables.values():
        key = table.primary_key.columns
        counted = len(key) == 1 and "id" in key and key["id"].autoincrement != False  # noqa: E712
        if counted:
            assert "AUTOINCREMENT" in tables[table.name], table.name
