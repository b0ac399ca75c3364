"""Alembic's entry point. catalog.migrate passes its open connection; alone it opens one."""

import asyncio
import os

from alembic import context
from sqlalchemy import Connection

from catalog.database import create_engine, with_write_lock
from catalog.models import Base


def _run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        compare_type=True,
        render_as_batch=connection.dialect.name == "sqlite",
    )
    with context.begin_transaction():
        context.run_migrations()


async def _run_alone() -> None:
    engine = with_write_lock(create_engine(os.environ["PROXIMITY_DATABASE_URL"]))
    async with engine.begin() as connection:
        await connection.run_sync(_run)
    await engine.dispose()


_given = context.config.attributes.get("connection")
if _given is None:
    asyncio.run(_run_alone())
else:
    _run(_given)
