"""PostgreSQL ends the pooled connections, as at a restart: no read fails, and no write."""

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import bindparam, event, func, select
from sqlalchemy.exc import DBAPIError

from catalog import postgresql_pool
from catalog.database import POOL_SIZE, Database, open_database
from catalog.models import Company
from catalog.reading import Reader, Reading, read
from catalog.sql_failures import database_may_recover
from tests.servers.postgres import PostgresServer, create_database, execute
from tests.servers.schema import make_schema
from tests.servers.waiting import eventually

BACKEND = Reading(select(func.pg_backend_pid().label("pid")))
SLEEP = Reading(select(func.pg_sleep(bindparam("seconds")).label("slept")))


class Pool:
    """A database, its connections, and what is done with them."""

    def __init__(self, database: Database) -> None:
        self.database = database
        url = database.engine.url.set(drivername="postgresql")
        self.url = url.render_as_string(hide_password=False)
        self.connections: list[Any] = []
        self.pinged = 0
        self.tries = 0
        self._ping = database.engine.dialect.do_ping
        event.listen(database.engine.sync_engine, "connect", self._note)

    def _note(self, connection: Any, _entry: Any) -> None:
        self.connections.append(connection.driver_connection)

    def ping(self, connection: Any) -> bool:
        self.pinged += 1
        return self._ping(connection)

    async def read(self) -> int:
        """The backend that answered."""

        def work(reader: Reader) -> int:
            self.tries += 1
            (row,) = reader.rows(BACKEND)
            return int(row["pid"])

        return await read(self.database, work)

    async def fill(self) -> set[int]:
        """Use every connection at once; their backends."""
        together = asyncio.Barrier(POOL_SIZE)

        async def one() -> int:
            async with self.database.autocommit() as session:
                number = await session.scalar(BACKEND.query)
                await together.wait()
            return int(number or 0)

        async with asyncio.timeout(60):
            found = set(await asyncio.gather(*(one() for _ in range(POOL_SIZE))))
        assert len(found) == POOL_SIZE
        self.pinged = 0
        return found

    def end_all(self) -> None:
        """End every session. The event loop stands meanwhile and sees none of it."""
        execute(
            self.url,
            "SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )

    def all_closed(self) -> bool:
        """Whether the event loop knows by now."""
        return all(connection.is_closed() for connection in self.connections)


@pytest.fixture
async def pool(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pool]:
    made = Pool(open_database(postgres_url))
    monkeypatch.setattr(made.database.engine.dialect, "do_ping", made.ping)
    yield made
    await made.database.close()


def trust(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(postgresql_pool, "_TRUSTED_SECONDS", seconds)


async def test_a_connection_in_use_is_not_pinged(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust(monkeypatch, 3600.0)
    first = await pool.read()
    assert [await pool.read() for _ in range(3)] == [first] * 3
    assert (pool.tries, pool.pinged) == (4, 0)


async def test_reads_that_meet_ended_connections_are_repeated(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust(monkeypatch, 3600.0)
    before = await pool.fill()
    pool.end_all()
    after = await asyncio.gather(*(pool.read() for _ in range(3 * POOL_SIZE)))
    assert before.isdisjoint(after)
    assert pool.tries > 3 * POOL_SIZE


async def test_an_end_that_was_seen_costs_no_try(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust(monkeypatch, 3600.0)
    before = await pool.fill()
    pool.end_all()
    await eventually(pool.all_closed, deadline=30, what="the event loop has seen it")
    after = await asyncio.gather(*(pool.read() for _ in range(POOL_SIZE)))
    assert before.isdisjoint(after)
    assert (pool.tries, pool.pinged) == (POOL_SIZE, 0)


async def test_a_connection_that_stood_idle_is_pinged(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust(monkeypatch, 0.0)
    before = await pool.fill()
    pool.end_all()
    assert await pool.read() not in before
    assert pool.tries == 1
    assert pool.pinged == 1  # with it the whole pool is known to be lost


async def test_sessions_are_pinged_however_short_they_stood(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they do is not repeated by itself."""
    trust(monkeypatch, 3600.0)
    await make_schema(pool.url)
    await pool.fill()
    pool.end_all()
    async with pool.database.write.begin() as session:
        session.add(Company(name="Harbour", create_on=datetime.now(UTC)))
    assert pool.pinged == 1


async def test_what_postgresql_cuts_off_is_not_repeated(pool: Pool) -> None:
    name = pool.database.engine.url.database
    execute(pool.url, f"ALTER DATABASE \"{name}\" SET statement_timeout = '100ms'")
    tries = []

    def work(reader: Reader) -> None:
        tries.append(1)
        reader.rows(SLEEP, seconds=60)

    with pytest.raises(DBAPIError, match="statement timeout"):
        await read(pool.database, work)
    assert tries == [1]


async def test_cancelled_reads_give_their_connections_back(pool: Pool) -> None:
    asked = asyncio.Event()

    def work(reader: Reader) -> None:
        asked.set()
        reader.rows(SLEEP, seconds=600)

    reading = [asyncio.create_task(read(pool.database, work)) for _ in range(2 * POOL_SIZE)]
    async with asyncio.timeout(60):
        await asked.wait()
        for task in reading:
            task.cancel()
        ended = await asyncio.gather(*reading, return_exceptions=True)
        assert {type(each) for each in ended} == {asyncio.CancelledError}
        await asyncio.gather(*(pool.read() for _ in range(POOL_SIZE)))
    await pool.fill()  # every place in the pool is there


@pytest.mark.skipif("PROXIMITY_TEST_FULL" not in os.environ, reason="PROXIMITY_TEST_FULL=1")
async def test_a_server_that_is_restarted(own_postgres: PostgresServer) -> None:
    url = create_database(own_postgres.admin_url)
    pool = Pool(open_database(url))
    try:
        before = await pool.fill()
        await asyncio.to_thread(own_postgres.stop)
        with pytest.raises((DBAPIError, OSError)) as down:
            await pool.read()
        assert database_may_recover(down.value)
        await asyncio.to_thread(own_postgres.start)
        after = await asyncio.gather(*(pool.read() for _ in range(3 * POOL_SIZE)))
        assert before.isdisjoint(after)
    finally:
        await pool.database.close()
