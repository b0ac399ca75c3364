"""The recorder's port to SQL, on both databases: what it writes and what it refuses."""

import asyncio

import pytest
from sqlalchemy import select, text

from catalog.models import RecorderOffset
from engine.kafka.offsets import Position
from engine.recorder.ledger import DetectionRow, Ledger
from tests.recorder.scene import NOW, Scene, next_offsets, open_scene
from tests.servers.waiting import eventually

TOPIC = "t.detections"


async def move_position(
    ledger: Ledger, topic: str, partition: int, old: Position | None, new: Position
) -> bool:
    async with ledger.transaction() as transaction:
        return await transaction.move_position(topic, partition, old, new)


async def test_a_position_moves_only_from_what_is_known(scene: Scene):
    """The offset is stored with the id of its topic."""
    ledger, old, new = scene.ledger, Position(7, "a" * 32), Position(0, "b" * 32)
    assert await move_position(ledger, TOPIC, 3, None, old)
    assert not await move_position(ledger, TOPIC, 3, None, new)
    assert await move_position(ledger, TOPIC, 3, old, Position(9, "a" * 32))
    assert await ledger.positions(TOPIC) == {3: Position(9, "a" * 32)}
    assert await ledger.positions("t.notifications") == {}
    assert await replaced(scene) == [False]
    for wrong in (old, Position(9, None), Position(9, "b" * 32)):
        assert not await move_position(ledger, TOPIC, 3, wrong, new)
    assert await move_position(ledger, TOPIC, 3, Position(9, "a" * 32), new)
    assert await ledger.positions(TOPIC) == {3: new}
    assert await replaced(scene) == [True]  # `verify` has to know
    assert await move_position(ledger, TOPIC, 3, new, Position(1, "b" * 32))
    assert await replaced(scene) == [True]


async def replaced(scene: Scene) -> list[bool]:
    async with scene.database.read() as session:
        return list(await session.scalars(select(RecorderOffset.replaced)))


async def no_transaction_is_idle(scene: Scene) -> bool:
    query = text("SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'")
    async with scene.database.read() as session:
        return bool(await session.scalar(query) == 0)


async def test_a_copy_that_is_cut_off_leaves_nothing_behind(postgres_url: str):
    """The connection is in the middle of a COPY then, and accepts no statement."""
    async with open_scene(postgres_url) as scene:

        async def copy() -> None:
            async with scene.ledger.transaction() as transaction:
                assert await transaction.move_position(TOPIC, 0, None, Position(10))
                row = DetectionRow(1, 1, 1, "near", NOW, None)
                await transaction.add_detections([row] * 100)

        for turns in range(20):
            async with scene.database.engine.begin() as blocker:
                await blocker.execute(text("LOCK TABLE detection_trace IN ACCESS EXCLUSIVE MODE"))
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05 + turns / 100):
                        await copy()
        for _ in range(20):
            assert await next_offsets(scene.ledger, TOPIC) == {}
        await copy()
        await eventually(lambda: no_transaction_is_idle(scene), what="no session is idle")
