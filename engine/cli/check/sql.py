"""Checks SQL: whether it is reachable, migrations, rights on the tables, clock."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.database import Database, open_database
from catalog.errors import DatabaseUrlError
from catalog.migrate import pending_on
from catalog.models.base import Base
from engine.cli.check.finding import Finding, bad, check_clock, ok
from engine.cli.servers import reason_of
from engine.process.settings import Settings
from engine.process.settings_display import shown

_PART = "SQL"
_SECONDS = 10.0
_RIGHTS = "SELECT, INSERT, UPDATE, DELETE"


async def check_sql(settings: Settings) -> list[Finding]:
    """Check SQL. Each statement takes at most 10 s."""
    where = shown(settings.database_url)
    found: list[Finding] = []
    try:
        async with _opened(settings) as database:
            missing = await pending_on(database.engine)
            found.append(ok(_PART, "reachable", where))
            found.append(_migrations(missing))
            if database.dialect == "postgresql":
                async with database.read() as session:
                    found += await _of_postgresql(session, tables_are_there=not missing)
    except DatabaseUrlError as error:
        found.append(bad(_PART, "reachable", str(error)))
    except (SQLAlchemyError, OSError, TimeoutError) as error:
        found.append(bad(_PART, "reachable", f"{where}: {reason_of(error)}"))
    return found


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[Database]:
    url = settings.database_url.get_secret_value()
    database = open_database(url, command_timeout=_SECONDS)
    try:
        yield database
    finally:
        await database.close()


def _migrations(missing: list[str]) -> Finding:
    if not missing:
        return ok(_PART, "migrations", "all applied")
    count = f"{len(missing)} missing, first {missing[0]}"
    return bad(_PART, "migrations", f"{count}: run `proximity migrate`")


async def _of_postgresql(session: AsyncSession, *, tables_are_there: bool) -> list[Finding]:
    before = time.time()
    now = float(await session.scalar(text("SELECT extract(epoch FROM clock_timestamp())")) or 0)
    clock = check_clock(_PART, now, before, time.time())
    return [await _rights(session), clock] if tables_are_there else [clock]


async def _rights(session: AsyncSession) -> Finding:
    lacking = []
    for table in sorted(Base.metadata.tables):
        for right in _RIGHTS.split(", "):
            query = text("SELECT has_table_privilege(current_user, :table, :right)")
            if not await session.scalar(query, {"table": table, "right": right}):
                lacking.append(f"{right} on {table}")
    # The recorder creates the day partitions of the traces.
    create = text("SELECT has_schema_privilege(current_user, current_schema(), 'CREATE')")
    if not await session.scalar(create):
        lacking.append("CREATE in the schema")
    if lacking:
        more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
        return bad(_PART, "rights", f"lacking: {', '.join(lacking[:3])}{more}")
    return ok(_PART, "rights", "on every table")
