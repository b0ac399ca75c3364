"""A transaction whose BEGIN is cancelled leaves nothing on the pooled connection.

asyncpg goes on believing that the transaction stands, and would make a savepoint of the next one,
in no transaction: "SAVEPOINT can only be used in transaction blocks".
"""

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from catalog.database import Database, open_database

_BACKEND = text("SELECT pg_backend_pid()")


async def _backend(database: Database) -> int:
    async with database.read() as session:
        return int((await session.execute(_BACKEND)).scalar_one())


@pytest.mark.parametrize("autocommit_next", [False, True])
async def test_a_cancelled_begin(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, autocommit_next: bool
) -> None:
    database = open_database(postgres_url)
    execute, started = asyncpg.Connection.execute, []

    async def cancelling(one: asyncpg.Connection, query: str, *args: object) -> str:
        if query.startswith("BEGIN"):
            started.append(query)
            if len(started) == 2:  # behind that of the pool's own ping
                raise asyncpg.QueryCanceledError("canceling statement due to user request")
        done: str = await execute(one, query, *args)
        return done

    try:
        before = await _backend(database)
        monkeypatch.setattr(asyncpg.Connection, "execute", cancelling)
        with pytest.raises(DBAPIError, match="canceling statement"):
            await _backend(database)
        assert len(started) == 2
        if autocommit_next:
            async with database.autocommit() as session:
                assert (await session.execute(_BACKEND)).scalar_one() != before
        assert await _backend(database) != before  # a connection of which nothing is believed
    finally:
        await database.close()
