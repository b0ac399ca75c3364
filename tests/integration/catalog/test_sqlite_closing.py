"""A SQLite connection that is closed in the middle of a statement leaves no task that hangs."""

import asyncio
import contextlib
import threading

import pytest
from sqlalchemy import text

from catalog.database import open_database
from tests.servers.waiting import eventually


@pytest.mark.parametrize("cancellations", [1, 2, 3])
async def test_cancelled_while_it_closes(sqlite_url: str, cancellations: int) -> None:
    before = asyncio.all_tasks()
    database = open_database(sqlite_url)
    entered, release = threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        release.wait(10)

    async def query() -> None:
        async with database.engine.connect() as connection:
            raw = await connection.get_raw_connection()
            assert raw.driver_connection is not None
            await raw.driver_connection.create_function("hold", 0, hold)
            await connection.execute(text("SELECT hold()"))

    task = asyncio.create_task(query())
    await eventually(entered.is_set)
    for _ in range(cancellations):
        task.cancel()
        for _ in range(10):  # until it waits for the closing of its connection
            await asyncio.sleep(0)
    release.set()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    async with asyncio.timeout(10):
        await database.close()
    await eventually(lambda: asyncio.all_tasks() == before, what="every task has ended")
