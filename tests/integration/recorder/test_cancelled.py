"""A transaction that is cancelled, again and again while it rolls back, leaves nothing behind."""

import asyncio
import contextlib

import pytest
from sqlalchemy import text

from engine.recorder.rows import DetectionRow
from tests.contract.ledgers import Scene, next_offsets, open_scene
from tests.integration.catalog.records import NOON
from tests.servers.waiting import eventually


async def move(scene: Scene, under_way: asyncio.Event) -> None:
    """Move an offset in a transaction that does not end."""
    async with scene.ledger.transaction() as transaction:
        assert await transaction.advance_offset("detections", 0, None, 10)
        under_way.set()
        await asyncio.Event().wait()


@pytest.mark.parametrize("turns", range(1, 7))
async def test_nothing_of_it_is_seen_or_locked(database_url: str, turns: int) -> None:
    async with open_scene(database_url) as scene:
        for _ in range(5):  # as many as the pool keeps
            under_way = asyncio.Event()
            task = asyncio.create_task(move(scene, under_way))
            await under_way.wait()
            while not task.done():
                task.cancel()
                for _ in range(turns):  # however far the rollback has come
                    await asyncio.sleep(0)
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for _ in range(6):
            assert await next_offsets(scene.ledger, "detections") == {}
        async with asyncio.timeout(10), scene.ledger.transaction() as transaction:
            assert await transaction.advance_offset("detections", 0, None, 7)
        assert await next_offsets(scene.ledger, "detections") == {0: 7}


async def test_postgresql_has_no_transaction_open(postgres_url: str) -> None:
    query = text("SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'")
    async with open_scene(postgres_url) as scene:
        under_way = asyncio.Event()
        task = asyncio.create_task(move(scene, under_way))
        await under_way.wait()
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)

        async def all_closed() -> bool:
            async with scene.database.engine.connect() as connection:
                await connection.execution_options(isolation_level="AUTOCOMMIT")
                return bool(await connection.scalar(query) == 0)

        await eventually(all_closed, what="no session stands idle in a transaction")


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 13, 21])
async def test_rows_on_their_way_can_be_cancelled(database_url: str, turns: int) -> None:
    rows = [DetectionRow(1, 2, 3, "near", NOON, "10.0.0.1")] * 20_000
    async with open_scene(database_url) as scene:
        under_way = asyncio.Event()

        async def write() -> None:
            async with scene.ledger.transaction() as transaction:
                assert await transaction.advance_offset("detections", 0, None, 10)
                under_way.set()
                await transaction.add_detections(rows)
                await asyncio.Event().wait()

        task = asyncio.create_task(write())
        await under_way.wait()
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(10), scene.ledger.transaction() as transaction:
            assert await transaction.advance_offset("detections", 0, None, 7)
