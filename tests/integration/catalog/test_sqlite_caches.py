"""The connections of SQLite together keep few pages of the file in memory."""

import asyncio

from sqlalchemy import text

from catalog.database import open_database
from tests.servers.schema import make_schema

MOST = 8 * 1024  # KiB
CONNECTIONS = 15  # of SQLAlchemy's pool, at most


async def test_all_caches_together_are_small(sqlite_url: str) -> None:
    await make_schema(sqlite_url)
    database = open_database(sqlite_url)
    together = asyncio.Barrier(CONNECTIONS)

    async def one() -> int:
        """The size of one connection's cache, in KiB: SQLite shows it as a negative number."""
        async with database.engine.connect() as connection:
            await together.wait()
            size: int = (await connection.execute(text("PRAGMA cache_size"))).scalar_one()
        return -size

    try:
        async with asyncio.timeout(60):
            sizes = await asyncio.gather(*(one() for _ in range(CONNECTIONS)))
    finally:
        await database.close()
    assert min(sizes) > 0
    assert sum(sizes) <= MOST
