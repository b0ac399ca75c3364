"""Opens the servers of a command for the time that it needs them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from catalog.accounts import find_company
from catalog.database import Database, open_database
from catalog.migrate import pending_on
from catalog.models import Company
from catalog.redis_connection import RedisClient, connect_redis, probe_redis
from engine.cli.command import CommandError
from engine.process.settings import Settings
from engine.wiring.parts import Stores, open_stores

_LONGEST_ID = 18  # digits


@asynccontextmanager
async def open_redis(settings: Settings) -> AsyncIterator[RedisClient]:
    """Redis. Raises RedisUrlError if its answer shows that REDIS_URL is wrong."""
    url = settings.redis_url.get_secret_value()
    await probe_redis(url)
    redis = connect_redis(url)
    try:
        yield redis
    finally:
        await redis.aclose()


@asynccontextmanager
async def open_migrated_database(
    settings: Settings, *, command_timeout: float = 30.0
) -> AsyncIterator[Database]:
    """SQL. Raises CommandError if migrations are missing."""
    url = settings.database_url.get_secret_value()
    database = open_database(url, command_timeout=command_timeout)
    try:
        await _refuse_old_tables(database)
        yield database
    finally:
        await database.close()


@asynccontextmanager
async def open_migrated_stores(settings: Settings) -> AsyncIterator[Stores]:
    """Redis and SQL, both of which answer."""
    await probe_redis(settings.redis_url.get_secret_value())
    async with open_stores(settings) as stores:
        await stores.redis.ping()
        await _refuse_old_tables(stores.database)
        yield stores


@asynccontextmanager
async def open_snapshot(database: Database) -> AsyncIterator[AsyncConnection]:
    """A connection that reads SQL at one moment. Raises SQLAlchemyError or OSError."""
    async with database.engine.connect() as connection:
        if database.dialect == "postgresql":
            await connection.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )
        async with connection.begin():
            if database.dialect == "postgresql":
                # The transaction is idle while the topics are read, which may take long.
                await connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
            yield connection


async def _refuse_old_tables(database: Database) -> None:
    if await pending_on(database.engine):
        raise CommandError("the database lacks what this version needs; run: proximity migrate")


async def company_named(session: AsyncSession, name_or_id: str) -> Company:
    """The company of that name or id. Raises CommandError if there is none."""
    found = await find_company(session, name_or_id)
    if found is None:
        raise CommandError(f"there is no company {name_or_id!r}")
    return found


async def company_id(settings: Settings, name_or_id: str) -> int:
    """The id of the company; a name is looked up in SQL."""
    if name_or_id.isascii() and name_or_id.isdigit() and len(name_or_id) <= _LONGEST_ID:
        return int(name_or_id)
    async with open_migrated_database(settings) as database, database.read() as session:
        return (await company_named(session, name_or_id)).id
