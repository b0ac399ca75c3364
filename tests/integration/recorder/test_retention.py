"""Day partitions are created and dropped without blocking readers and writers for long."""

import asyncio
import zlib
from datetime import UTC, datetime, timedelta

from asyncpg.exceptions import LockNotAvailableError
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from catalog.database import open_database
from engine.process.failures import database_may_recover
from engine.process.metrics import Metrics
from engine.recorder.postgresql_retention import PostgresRetentionStore
from engine.recorder.retention import RetentionWindow
from engine.recorder.rows import DetectionRow
from tests.acceptance.recorder.estate import build_estate
from tests.acceptance.recorder.sql_figures import assert_written
from tests.contract.ledgers import open_scene
from tests.integration.recorder.test_concurrency import NOW_MS, flooded, record_all, recorder_of

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
TODAY = NOW.date()
LONG_ENOUGH = 10.0
WINDOW = RetentionWindow(NOW, NOW + timedelta(days=4), TODAY)


async def test_a_slow_reader_does_not_stop_the_writers(postgres_url: str) -> None:
    async with open_scene(postgres_url) as scene:
        await scene.store.create_days(TODAY - timedelta(days=2), TODAY)
        async with scene.database.read() as reader:
            await reader.execute(text("SELECT count(*) FROM detection_trace"))
            dropping = asyncio.create_task(scene.store.delete_outside(WINDOW))
            async with asyncio.timeout(LONG_ENOUGH):
                for number in range(20):
                    async with scene.ledger.transaction() as transaction:
                        await transaction.add_detections(
                            [DetectionRow(number, 1, 1, "near", NOW, None)]
                        )
            (outcome,) = await asyncio.gather(dropping, return_exceptions=True)
        assert isinstance(outcome, DBAPIError), outcome
        assert getattr(outcome.orig, "sqlstate", None) == LockNotAvailableError.sqlstate
        assert database_may_recover(outcome)
        assert await scene.store.delete_outside(WINDOW) == 4


async def test_days_are_made_while_rows_pour_in(postgres_url: str) -> None:
    estate = await build_estate(postgres_url)
    database = open_database(postgres_url)
    flood, partitions = flooded(estate, lambda message: zlib.crc32(message.key) % 4)
    store = PostgresRetentionStore(database.engine)
    recording = asyncio.create_task(record_all(recorder_of(database, Metrics()), partitions))
    last = datetime.fromtimestamp(NOW_MS / 1000, UTC).date()
    for age in range(4):  # the flood is of three days
        await store.create_days(last - timedelta(days=age), last - timedelta(days=age))
    await recording
    await assert_written(database, flood.expected)
    async with database.read() as session:
        assert await session.scalar(text("SELECT count(*) FROM detection_trace_default")) == 0
    await database.close()
