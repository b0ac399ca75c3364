"""A URL that cannot work is refused without showing its password."""

import asyncio
import os
from pathlib import Path

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError
from sqlalchemy import make_url, text
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from catalog.database import open_database
from catalog.errors import DatabaseUrlError, RedisUrlError
from catalog.migrate import migrate
from catalog.redis_connection import connect_redis
from engine.process.failures import redis_may_recover

PASSWORD = "hunter2"


@pytest.mark.parametrize(
    "url",
    [
        f"mysql://me:{PASSWORD}@localhost/x",
        f"postgresql://me:{PASSWORD}@localhost:port/x",
        f"postgresql://me:{PASSWORD}@localhost/x?sslmode=verify-full&sslrootcert=/not/there",
        f"postgresql://me:{PASSWORD}@localhost/x?sslmode=always",
        f"postgresql://me:{PASSWORD}@localhost/x?channel_binding=require",
        f"://{PASSWORD}",
        "",
    ],
)
def test_database_url(url: str):
    with pytest.raises(DatabaseUrlError, match="the database URL cannot be used: ") as caught:
        open_database(url)
    assert PASSWORD not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        f"http://:{PASSWORD}@localhost",
        f"redis://:{PASSWORD}@localhost:port",
        f"redis://:{PASSWORD}@localhost?socket_timeout={PASSWORD}",
        f"redis+cluster://:{PASSWORD}@localhost:port",
        "",
    ],
)
def test_redis_url(url: str):
    with pytest.raises(RedisUrlError, match="accepted: redis://") as caught:
        connect_redis(url)
    assert PASSWORD not in str(caught.value)


async def test_redis_client():
    client = connect_redis(f"rediss://me:{PASSWORD}@example.org:7000/3", timeout=2.0)
    assert isinstance(client, Redis)
    options = client.connection_pool.connection_kwargs
    assert (options["host"], options["port"], options["db"]) == ("example.org", 7000, 3)
    assert (options["socket_timeout"], options["socket_connect_timeout"]) == (2.0, 2.0)
    await client.aclose()


def test_database_drivers():
    database = open_database(f"postgresql://me:{PASSWORD}@localhost/x?sslmode=require")
    assert database.dialect == "postgresql"
    url = database.engine.url
    assert (url.drivername, url.query) == ("postgresql+asyncpg", {})
    assert PASSWORD not in repr(database)
    assert open_database("sqlite:///file").engine.url.drivername == "sqlite+aiosqlite"


async def test_a_cluster_that_is_down_may_answer_later():
    """redis-py raises an error for it that is no RedisError."""
    client = connect_redis("redis+cluster://127.0.0.1:1")
    with pytest.raises(RedisError) as caught:
        await client.execute_command("PING")
    assert redis_may_recover(caught.value)
    await client.aclose()


async def test_an_unreachable_database():
    database = open_database(f"postgresql://me:{PASSWORD}@127.0.0.1:1/x")
    with pytest.raises((OSError, SQLAlchemyError)) as caught:
        async with database.read() as session:
            await session.connection()
    assert PASSWORD not in str(caught.value)


async def test_sqlite_writers_take_turns(sqlite_url: str):
    database = open_database(sqlite_url, command_timeout=0.1)
    async with database.write.begin() as first:
        await first.connection()
        async with database.read() as reader:
            assert (await reader.connection()).in_transaction()
        async with database.write() as second:
            with pytest.raises(OperationalError, match="locked"):
                await second.connection()
    await database.close()


def modes(path: Path) -> dict[str, int]:
    """Of the file, and of those beside it that SQLite makes."""
    return {each.name: each.stat().st_mode & 0o777 for each in path.parent.glob(f"{path.name}*")}


async def test_a_database_in_a_file_is_its_owners_alone(sqlite_url: str):
    """It holds hashes of passwords, and who was where; the files beside it, too."""
    path = Path(make_url(sqlite_url).database or "")
    assert not modes(path)
    old = os.umask(0o022)
    try:
        await migrate(sqlite_url)
        database = open_database(sqlite_url)
        async with database.write.begin() as session:
            await session.execute(text("UPDATE company SET name = name"))
            found = modes(path)
        await database.close()
    finally:
        os.umask(old)
    assert f"{path.name}-wal" in found
    assert set(found.values()) == {0o600}, found


async def test_a_database_that_is_there_keeps_its_mode(sqlite_url: str):
    path = Path(make_url(sqlite_url).database or "")
    await migrate(sqlite_url)
    await asyncio.to_thread(path.chmod, 0o640)
    await migrate(sqlite_url)
    assert modes(path)[path.name] == 0o640
