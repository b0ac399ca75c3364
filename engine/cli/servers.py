"""Opens servers for commands, and turns a server's failure into one line for the user."""

import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from aiokafka.errors import KafkaConnectionError, KafkaError, NodeNotReadyError
from asyncpg import InterfaceError, PostgresError
from redis.exceptions import RedisError
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from catalog.accounts import find_company
from catalog.database import Database, open_database
from catalog.errors import DatabaseUrlError, RedisUrlError
from catalog.migrate import pending_on
from catalog.models import Company
from catalog.redis_connection import probe_redis
from engine.cli.command import CommandError
from engine.process.errors import SettingsError
from engine.process.settings import PREFIX, Settings
from engine.process.settings_sources import shown

if TYPE_CHECKING:
    from engine.wiring.parts import Stores

_LONGEST_ID = 18  # digits


@contextmanager
def url_faults() -> Iterator[None]:
    """Turn the error of an invalid URL into a SettingsError that names its setting."""
    try:
        yield
    except RedisUrlError as error:
        raise SettingsError(f"{PREFIX}REDIS_URL: {error}") from None
    except DatabaseUrlError as error:
        raise SettingsError(f"{PREFIX}DATABASE_URL: {error}") from None


async def refuse_wrong_servers(settings: Settings) -> None:
    """Raise SettingsError if the answer of Redis shows that REDIS_URL is wrong."""
    with url_faults():
        await probe_redis(settings.redis_url.get_secret_value())


@contextmanager
def server_failures(settings: Settings, done: str = "") -> Iterator[None]:
    """Turn errors of Redis and SQL into a CommandError; `done` says what was done before."""
    after = f"; {done}" if done else ""
    try:
        yield
    except BrokenPipeError:  # the reader of the output has ended, as `head` does
        raise
    except RedisError as error:
        reason = redis_reason(settings, error)
        raise CommandError(f"Redis does not serve: {reason}{after}") from None
    except (SQLAlchemyError, PostgresError, InterfaceError, OSError) as error:
        reason = sql_reason(settings, error)
        raise CommandError(f"the database refused: {reason}{after}") from None


@asynccontextmanager
async def open_migrated_database(
    settings: Settings, *, command_timeout: float = 30.0
) -> AsyncIterator[Database]:
    """Open the database for the context.

    Errors of SQL within the context and missing migrations are raised as CommandError. Also raises
    DatabaseUrlError.
    """
    url = settings.database_url.get_secret_value()
    database = open_database(url, command_timeout=command_timeout)
    try:
        with server_failures(settings):
            await _refuse_old_tables(database)
            yield database
    finally:
        await database.close()


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


@asynccontextmanager
async def open_migrated_stores(settings: Settings, done: str = "") -> "AsyncIterator[Stores]":
    """Redis and SQL for the context. Raises SettingsError, and CommandError for their failures."""
    from engine.wiring.parts import open_stores

    await refuse_wrong_servers(settings)
    with url_faults(), server_failures(settings, done):
        try:
            async with open_stores(settings) as stores:
                await stores.redis_answers()
                await _refuse_old_tables(stores.database)
                yield stores
        except TimeoutError:  # an OSError, too
            after = f"; {done}" if done else ""
            raise CommandError(f"Redis or the database took too long{after}") from None


async def _refuse_old_tables(database: Database) -> None:
    if await pending_on(database.engine):
        raise CommandError("the database lacks what this version needs; run: proximity migrate")


async def company_named(session: AsyncSession, name_or_id: str) -> Company:
    """The company of that name or id. Raises CommandError if there is none."""
    found = await find_company(session, name_or_id)
    if found is None:
        raise CommandError(f"there is no company {name_or_id!r}")
    return found


def reason_of(error: Exception) -> str:
    """The first line of the driver's message, or the error's name."""
    return str(getattr(error, "orig", None) or error).partition("\n")[0] or type(error).__name__


def sql_reason(settings: Settings, error: Exception) -> str:
    """The reason of an SQL error, with the setting of the database."""
    return f"{reason_of(error)} ({PREFIX}DATABASE_URL is {shown(settings.database_url)})"


def redis_reason(settings: Settings, error: Exception) -> str:
    """The reason of a Redis error, with the setting of Redis."""
    return f"{reason_of(error)} ({PREFIX}REDIS_URL is {shown(settings.redis_url)})"


@contextmanager
def kafka_failures(settings: Settings, done: Callable[[], str] | None = None) -> Iterator[None]:
    """Turn Kafka's errors and timeouts into a CommandError; `done` says what was done before."""
    with kafka_log() as logged:
        try:
            yield
        except (KafkaError, TimeoutError) as error:
            before = f"; {done()}" if done else ""
            where = settings.kafka_bootstrap_servers
            raise CommandError(
                f"Kafka at {where} does not serve: {kafka_reason(error, logged)}{before}"
            ) from None


@contextmanager
def kafka_log() -> Iterator[deque[str]]:
    """The last complaint of aiokafka, which logs why no broker answers and does not raise it."""
    logged: deque[str] = deque(maxlen=1)
    handler, logger = logging.Handler(logging.WARNING), logging.getLogger("aiokafka")
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        yield logged
    finally:
        logger.removeHandler(handler)


def kafka_reason(error: Exception, logged: Collection[str]) -> str:
    """The reason of an error of Kafka; where it is vague, the last complaint and what to check."""
    if not isinstance(error, KafkaConnectionError | NodeNotReadyError | TimeoutError):
        return reason_of(error)
    said = " ".join((*logged, reason_of(error))[0].split())
    return f"{said}: check {PREFIX}KAFKA_BOOTSTRAP_SERVERS, _SECURITY_PROTOCOL and the login"


async def company_id(settings: Settings, name_or_id: str) -> int:
    """The id of the company; a name is looked up in SQL."""
    if name_or_id.isascii() and name_or_id.isdigit() and len(name_or_id) <= _LONGEST_ID:
        return int(name_or_id)
    async with open_migrated_database(settings) as database, database.read() as session:
        return (await company_named(session, name_or_id)).id
