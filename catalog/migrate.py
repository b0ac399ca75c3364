"""Upgrades a database to the schema of this version."""

from pathlib import Path

from sqlalchemy import Connection, event, inspect, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import ConnectionPoolEntry

from catalog.database import open_database, sqlstate_of, with_write_lock
from catalog.errors import MigrationError

MIGRATIONS = Path(__file__).with_name("migrations")
_DEADLINE = 300.0  # seconds, also for the wait while another process migrates
# Seconds to wait for a table that another transaction has locked. Everybody else who needs the
# table waits behind a migration that waits.
_LOCK_SECONDS = 10
_LOCK_NOT_AVAILABLE = "55P03"
_ADVISORY_LOCK = 0x70726F78  # "prox": any number that others are unlikely to choose


async def migrate(url: str) -> list[str]:
    """Upgrade to the newest schema in one transaction. Returns the revisions that were applied.

    Several processes may call it at once: one upgrades, the others wait and find nothing to do.
    Raises DatabaseUrlError, MigrationError, OSError or SQLAlchemyError; then nothing has changed.
    """
    engine = with_write_lock(open_database(url, command_timeout=_DEADLINE).engine)
    if engine.dialect.name == "sqlite":
        event.listen(engine.sync_engine, "connect", _without_foreign_keys)
    try:
        async with engine.begin() as connection:
            return await connection.run_sync(_upgrade)
    except DBAPIError as error:
        if sqlstate_of(error) != _LOCK_NOT_AVAILABLE:
            raise
        raise MigrationError(
            f"another transaction has held a lock on a table for {_LOCK_SECONDS} s; "
            "nothing has changed: end it, or try again later"
        ) from None
    finally:
        await engine.dispose()


async def pending(engine: AsyncEngine) -> list[str]:
    """The revisions that `migrate` would apply, oldest first."""
    async with engine.connect() as connection:
        return await connection.run_sync(_missing)


def _upgrade(connection: Connection) -> list[str]:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
        connection.execute(text(f"SET LOCAL lock_timeout = '{_LOCK_SECONDS}s'"))
    missing = _missing(connection)
    if missing:
        # It takes 9 MiB, which the processes that only look for missing revisions need not pay.
        from alembic import command
        from alembic.config import Config

        config = Config()  # there is no alembic.ini: the package has all of it
        config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
        config.set_main_option("path_separator", "os")
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        if connection.dialect.name == "sqlite":
            _check_foreign_keys(connection)
    return missing


def _without_foreign_keys(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    # A step that rebuilds a table drops the old one, which would empty the tables below it. The
    # switch does nothing within a transaction.
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys=OFF")
    cursor.close()


def _check_foreign_keys(connection: Connection) -> None:
    broken = connection.execute(text("PRAGMA foreign_key_check")).first()
    if broken is not None:
        raise MigrationError(f"a row of {broken[0]} would be left without its {broken[2]}")


def _missing(connection: Connection) -> list[str]:
    # Each file in versions begins with its revision; they are applied in the order of their names.
    files = sorted((MIGRATIONS / "versions").glob("[0-9]*.py"))
    revisions = [file.name.partition("_")[0] for file in files]
    if not inspect(connection).has_table("alembic_version"):
        return revisions
    done = connection.scalar(text("SELECT version_num FROM alembic_version"))
    if done is not None and done not in revisions:
        return []  # a newer version was here, whose tables serve this one too
    return [each for each in revisions if done is None or each > done]
