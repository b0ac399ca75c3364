"""A recorder that is stopped while SQL does not answer logs only that it stops."""

import asyncio
import contextlib
import gc
import os
import random
import signal
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import text

from catalog.database import Database, open_database, with_write_lock
from engine.recorder.sqlite import to_its_end
from tests.acceptance.recorder.estate import build_estate
from tests.acceptance.recorder.flood import Flood
from tests.acceptance.recorder.publishing import publish
from tests.acceptance.recorder.sql_figures import recorded
from tests.acceptance.rig import Rig
from tests.acceptance.topics import TopicSet
from tests.servers.freezing import frozen
from tests.servers.postgres import PostgresServer, create_database
from tests.servers.waiting import eventually

DRAIN = 1.0


async def test_a_statement_that_fails_behind_a_cancelled_caller() -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))

    async def fails() -> None:
        await asyncio.sleep(0.01)
        raise ConnectionResetError

    for turns in (1, 2):
        task = asyncio.create_task(to_its_end(fails()))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    gc.collect()
    assert complaints == []


async def _stop_while_blocked(
    rig: Rig, topics: TopicSet, bootstrap: str, database: Database, url: str, hold: Any
) -> None:
    """Records arrive, SQL hangs, and the recorder is stopped."""
    await topics.create()
    flood = Flood(
        await build_estate(url), random.Random(8), devices=50, now_ms=time.time_ns() // 1_000_000
    )
    rig.environment |= {"DATABASE_URL": url, "DRAIN_TIMEOUT": str(DRAIN), "TRACE": "all"}
    recorder = rig.recorder()
    await recorder.until_ready()
    first = await publish(bootstrap, topics.name(""), flood.detections(100))

    async def has(count: int) -> bool:
        return await recorded(database) >= count

    await eventually(lambda: has(first), deadline=30, what="the first records")
    async with hold():
        for make in (flood.detections, flood.notifications, flood.authentications):
            await publish(bootstrap, topics.name(""), make(200))
        await asyncio.sleep(1)  # nothing shows that all partitions are held up
        begin = time.monotonic()
        recorder.process.send_signal(signal.SIGTERM)
        status = await recorder.ended()
        seconds = time.monotonic() - begin
    assert "never retrieved" not in recorder.output, recorder.output
    assert "Traceback" not in recorder.output, recorder.output
    assert status == 0, recorder.output
    print(f"stopped within {seconds:.1f} s")


@pytest.mark.timeout(120)
async def test_rows_are_locked_on_postgresql(
    rig: Rig, topics: TopicSet, kafka_bootstrap: str, redis_url: str, postgres_url: str
) -> None:
    rig.environment |= {"REDIS_URL": redis_url}
    database = open_database(postgres_url)

    @contextlib.asynccontextmanager
    async def hold() -> AsyncIterator[None]:
        async with database.engine.begin() as connection:
            await connection.execute(text("LOCK TABLE device IN ACCESS EXCLUSIVE MODE"))
            yield

    try:
        await _stop_while_blocked(rig, topics, kafka_bootstrap, database, postgres_url, hold)
    finally:
        await database.close()


@pytest.mark.skipif("PROXIMITY_TEST_FULL" not in os.environ, reason="SQLite waits for 30 s")
@pytest.mark.timeout(120)
async def test_another_writes_on_sqlite(
    rig: Rig, topics: TopicSet, kafka_bootstrap: str, redis_url: str, sqlite_url: str
) -> None:
    rig.environment |= {"REDIS_URL": redis_url}
    database = open_database(sqlite_url)

    @contextlib.asynccontextmanager
    async def hold() -> AsyncIterator[None]:
        async with with_write_lock(database.engine).begin():
            yield

    try:
        await _stop_while_blocked(rig, topics, kafka_bootstrap, database, sqlite_url, hold)
    finally:
        await database.close()


@pytest.mark.timeout(120)
async def test_postgresql_stands_still(
    rig: Rig,
    topics: TopicSet,
    kafka_bootstrap: str,
    redis_url: str,
    own_postgres: PostgresServer,
) -> None:
    rig.environment |= {"REDIS_URL": redis_url}
    url = create_database(own_postgres.admin_url)
    database = open_database(url)

    @contextlib.asynccontextmanager
    async def hold() -> AsyncIterator[None]:
        with frozen(own_postgres):
            yield

    try:
        await _stop_while_blocked(rig, topics, kafka_bootstrap, database, url, hold)
    finally:
        await database.close()
