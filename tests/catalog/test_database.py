"""The database: TLS, sessions, files, and connections that are lost or cut off."""

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest
import trustme
from sqlalchemy import make_url, text
from sqlalchemy.exc import DBAPIError

from catalog.database import Database, database_may_recover, open_database
from catalog.migrate import migrate
from engine.cli.application import run
from tests.servers.missing import DATABASE, skipping
from tests.servers.postgres import TlsPostgresServer
from tests.servers.process import started
from tests.servers.waiting import eventually

POOL_SIZE = 4
BACKEND = text("SELECT pg_backend_pid()")


@pytest.fixture
async def pooled(postgres_url: str) -> AsyncIterator[Database]:
    database = open_database(postgres_url, pool_size=POOL_SIZE)
    yield database
    await database.close()


async def _backend(database: Database) -> int:
    async with database.read() as session:
        return int((await session.execute(BACKEND)).scalar_one())


async def test_a_connection_whose_begin_was_cut_off_is_not_used_again(
    pooled: Database, monkeypatch: pytest.MonkeyPatch
):
    """asyncpg goes on believing that the transaction stands."""
    execute_on, began = asyncpg.Connection.execute, []

    async def cancelling(one: asyncpg.Connection, query: str, *args: object) -> str:
        if query.startswith("BEGIN"):
            began.append(query)
            if len(began) == 2:  # behind that of the pool's own ping
                raise asyncpg.QueryCanceledError("canceling statement due to user request")
        done: str = await execute_on(one, query, *args)
        return done

    before = await _backend(pooled)
    monkeypatch.setattr(asyncpg.Connection, "execute", cancelling)
    with pytest.raises(DBAPIError, match="canceling statement"):
        await _backend(pooled)
    assert await _backend(pooled) != before


async def test_a_connection_that_another_statement_uses_is_temporary_and_not_used_again(
    pooled: Database,
):
    """asyncpg leaves one so when its server dies while a statement is cancelled."""
    before = await _backend(pooled)
    async with pooled.engine.connect() as connection:
        driver = (await connection.get_raw_connection()).driver_connection
        assert driver is not None
        forgotten = asyncio.create_task(driver.execute("SELECT pg_sleep(60)"))
        await asyncio.sleep(0)
        with pytest.raises(DBAPIError, match="another operation is in progress") as caught:
            await connection.execute(BACKEND)
    assert database_may_recover(caught.value)
    assert await _backend(pooled) != before
    with pytest.raises(asyncpg.PostgresError):
        await forgotten


def _modes(path: Path) -> dict[str, int]:
    """Of the file, and of those beside it that SQLite makes."""
    return {each.name: each.stat().st_mode & 0o777 for each in path.parent.glob(f"{path.name}*")}


async def test_a_sqlite_file_is_its_owners_alone(sqlite_url: str):
    """It holds hashes of passwords, and who was where; the files beside it, too."""
    path = Path(make_url(sqlite_url).database or "")
    old = os.umask(0o022)
    try:
        await migrate(sqlite_url)
        database = open_database(sqlite_url)
        async with database.write.begin() as session:
            await session.execute(text("UPDATE company SET name = name"))
            found = _modes(path)
        await database.close()
    finally:
        os.umask(old)
    assert f"{path.name}-wal" in found
    assert set(found.values()) == {0o600}, found
    path.chmod(0o640)  # noqa: ASYNC240
    await migrate(sqlite_url)
    assert _modes(path)[path.name] == 0o640


@pytest.mark.parametrize("cancellations", [1, 2])
async def test_a_sqlite_connection_that_is_cancelled_while_it_closes(
    sqlite_url: str, cancellations: int
):
    before = asyncio.all_tasks()
    database = open_database(sqlite_url)
    entered, release = threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        release.wait(90)

    async def query() -> None:
        async with database.engine.connect() as connection:
            raw = await connection.get_raw_connection()
            assert raw.driver_connection is not None
            await raw.driver_connection.create_function("hold", 0, hold)
            await connection.execute(text("SELECT hold()"))

    task = asyncio.create_task(query())
    await eventually(entered.is_set)
    for _ in range(cancellations):
        task.cancel()
        for _ in range(10):  # until it waits for the closing of its connection
            await asyncio.sleep(0)
    release.set()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    async with asyncio.timeout(90):
        await database.close()
    await eventually(lambda: asyncio.all_tasks() == before, what="every task has ended")


@pytest.fixture(scope="module")
def postgres() -> Iterator[TlsPostgresServer]:
    with skipping("PostgreSQL", instead=DATABASE), started(TlsPostgresServer) as server:
        yield server


@pytest.mark.parametrize(
    "query",
    [
        "sslmode=verify-full&sslrootcert={ca}",
        "sslmode=require&sslrootcert={ca}",
        "sslrootcert={ca}",
        "ssl=require",
        "sslmode=verify-full&sslrootcert={ca}&application_name=mine&target_session_attrs=any",
    ],
)
async def test_tls_is_spoken(postgres: TlsPostgresServer, query: str) -> None:
    database = open_database(postgres.url(query.format(ca=postgres.authority)))
    encrypted = text("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
    async with database.read() as session:
        assert await session.scalar(encrypted) is True
    await database.close()


@pytest.mark.parametrize("query", ["sslmode=require&sslrootcert={other}", "sslrootcert={other}"])
def test_an_authority_that_is_named_is_used(
    postgres: TlsPostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    query: str,
) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(other)
    url = postgres.url(query.format(other=other))
    monkeypatch.setenv("PROXIMITY_DATABASE_URL", url)
    assert run(["migrate"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1, error
    assert "certificate verify failed" in error.lower()
