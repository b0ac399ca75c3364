"""Opens the servers of a command, and turns a failure into its exit status and one line."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

import typer
from aiokafka import errors as kafka
from asyncpg import InterfaceError, PostgresError
from redis.exceptions import RedisError
from sqlalchemy import select, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from typer.exceptions import TyperException

from catalog.database import Database
from catalog.errors import CatalogError, RedisUrlError
from catalog.inputs import is_id
from catalog.models import Company
from catalog.redis_connection import probe_redis
from connectors.errors import ConnectorError
from engine.cli.command import FAILED, INTERRUPTED, USAGE, CommandError, read_settings
from engine.kafka.dead_letters import TooManyDeadLettersError
from engine.kafka.producer import MessageTooLargeError, Publisher
from engine.process.errors import ProcessError, SettingsError
from engine.process.failures import describe
from engine.process.settings import PREFIX, Settings
from engine.process.settings_sources import shown
from engine.wiring.parts import Stores, open_stores, refuse_old_schema

# Errors whose message is the line.
_FAILURES = (CommandError, ProcessError, CatalogError, ConnectorError, TooManyDeadLettersError)


def failure(error: BaseException, complaints: Collection[str]) -> tuple[int, str]:
    """The exit status and the line of an error. Raises the error if it is none of a command's."""
    if isinstance(error, TyperException):
        return error.exit_code, error.format_message()
    if isinstance(error, typer.Abort | KeyboardInterrupt):
        return INTERRUPTED, "; ".join(("interrupted", *error.args))
    line = line_of(error, complaints)
    is_usage = isinstance(error, SettingsError | RedisUrlError)
    return USAGE if is_usage else FAILED, "; ".join((line, *getattr(error, "__notes__", ())))


def line_of(error: BaseException, complaints: Collection[str]) -> str:
    """The line of an error of a server or of the work. Raises any other error.

    `complaints` are those of aiokafka, which say more than a vague error.
    """
    if isinstance(error, RedisUrlError):  # only its answer has shown that the setting is wrong
        return f"{PREFIX}REDIS_URL: {error}"
    if isinstance(error, _FAILURES):
        return str(error)
    if isinstance(error, MessageTooLargeError):
        return f"the broker refuses {error}"
    if isinstance(error, OSError) and error.filename is not None:
        return f"cannot use {error.filename}: {error.strerror}"
    if isinstance(error, kafka.KafkaError) or (isinstance(error, OSError) and complaints):
        return _line_of_kafka(error, complaints)
    if isinstance(error, RedisError):
        where = shown(read_settings().redis_url)
        return f"Redis does not serve: {describe(error)} ({PREFIX}REDIS_URL is {where})"
    if isinstance(error, TimeoutError):
        return "a server did not answer in time: `proximity check` tries each of them"
    if isinstance(error, SQLAlchemyError | PostgresError | InterfaceError | OSError):
        where, cause = shown(read_settings().database_url), getattr(error, "orig", None) or error
        return f"the database refused: {describe(cause)} ({PREFIX}DATABASE_URL is {where})"
    raise error


def _line_of_kafka(error: Exception, complaints: Collection[str]) -> str:
    reason = describe(error)
    if isinstance(error, kafka.KafkaConnectionError | kafka.NodeNotReadyError | OSError):
        settings = f"{PREFIX}KAFKA_BOOTSTRAP_SERVERS, _SECURITY_PROTOCOL and the login"
        reason = f"{next(iter(complaints), reason)}: check {settings}"
    if isinstance(error, kafka.InvalidSessionTimeoutError):
        reason = f"{PREFIX}KAFKA_SESSION_TIMEOUT is outside the limits of the brokers' groups"
    return f"Kafka at {read_settings().kafka_bootstrap_servers} does not serve: {reason}"


@asynccontextmanager
async def open_redis(settings: Settings) -> AsyncIterator[Stores]:
    """Redis, which answers; SQL is not asked.

    Raises RedisUrlError if an answer shows that REDIS_URL is wrong.
    """
    await probe_redis(settings.redis_url.get_secret_value())
    async with open_stores(settings) as stores:
        await stores.redis.ping()
        yield stores


@asynccontextmanager
async def open_migrated_database(settings: Settings, **options: Any) -> AsyncIterator[Database]:
    """SQL. `options` are those of `open_stores`. Raises SchemaError if migrations are missing."""
    async with open_stores(settings, **options) as stores:
        await refuse_old_schema(stores.database)
        yield stores.database


@asynccontextmanager
async def open_migrated_stores(settings: Settings) -> AsyncIterator[Stores]:
    """Redis and SQL, both of which answer."""
    async with open_redis(settings) as stores:
        await refuse_old_schema(stores.database)
        yield stores


@asynccontextmanager
async def open_publisher(settings: Settings) -> AsyncIterator[Publisher]:
    """A producer that is started. Raises KafkaError or TimeoutError."""
    publisher = Publisher(settings)
    try:
        await publisher.start()
        yield publisher
    finally:
        await publisher.close()


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


async def company_named(session: AsyncSession, name_or_id: str) -> Company:
    """The company of that name, else of that id. Raises CommandError if there is none."""
    found = await session.scalar(select(Company).where(Company.name == name_or_id))
    if found is None and is_id(name_or_id):
        found = await session.get(Company, int(name_or_id))
    if found is None:
        raise CommandError(f"there is no company {name_or_id!r}")
    return found


async def company_id(settings: Settings, name_or_id: str) -> int:
    """The id of the company; a name is looked up in SQL."""
    if is_id(name_or_id):
        return int(name_or_id)
    async with open_migrated_database(settings) as database, database.read() as session:
        return (await company_named(session, name_or_id)).id
