"""PostgreSQL and SQLite answer, a test's database is empty, and a stop or a kill loses nothing."""

import pytest
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import create_async_engine

from tests.servers.postgres import PostgresServer, execute

_DRIVERS = {"postgresql": "postgresql+asyncpg", "sqlite": "sqlite+aiosqlite"}


@pytest.mark.parametrize("turn", [1, 2])
async def test_each_test_gets_an_empty_database(database_url: str, turn: int) -> None:
    url = make_url(database_url)
    engine = create_async_engine(url.set(drivername=_DRIVERS[url.drivername]))
    async with engine.begin() as connection:
        assert (await connection.execute(text("SELECT 1"))).scalar_one() == 1
        await connection.execute(text("CREATE TABLE mine (turn INTEGER)"))
    await engine.dispose()


def test_postgres_keeps_its_data_over_a_stop_and_a_kill(own_postgres: PostgresServer) -> None:
    execute(own_postgres.admin_url, "CREATE TABLE stopped (id INTEGER)")
    own_postgres.stop()
    assert not own_postgres.running
    own_postgres.start()
    execute(own_postgres.admin_url, "CREATE TABLE killed (id INTEGER)")
    own_postgres.kill()
    own_postgres.start()
    execute(own_postgres.admin_url, "SELECT * FROM stopped, killed")
