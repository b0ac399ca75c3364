"""A recorder whose clock is 32 days ahead, or behind: it deletes nothing, and logs that."""

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import func, select, text

from catalog.models import DetectionTrace, Reception
from engine.recorder.ledger import DetectionRow, ReceptionRow
from tests.recorder.scene import Scene, open_scene
from tests.servers.waiting import eventually
from tests.system.rig import Command, Rig
from tests.system.topics import TopicSet
from tests.system.wrong_clock import WrongClock

DAY = 86_400
ROWS = 50


async def fill(scene: Scene) -> None:
    now = datetime.now(UTC)
    await scene.ledger.create_days([now.date()])
    async with scene.ledger.transaction() as transaction:
        await transaction.add_detections([DetectionRow(1, 1, 1, "near", now, None)] * ROWS)
        await transaction.add_receptions([ReceptionRow(uuid4(), 1, 1, now) for _ in range(ROWS)])


async def has_logged(recorder: Command) -> bool:
    assert recorder.process.poll() is None, recorder.output
    return "nothing old is deleted" in recorder.output


@pytest.mark.timeout(120)
async def test_it_deletes_nothing(
    rig: Rig, topics: TopicSet, redis_url: str, database_url: str, tmp_path: Path
) -> None:
    await topics.create()
    async with open_scene(database_url) as scene:
        await fill(scene)
        rig.environment |= {"REDIS_URL": redis_url, "DATABASE_URL": database_url}
        clock = WrongClock(tmp_path)
        recorders = [clock.recorder(rig, days * DAY) for days in (32, -32)]
        for recorder in recorders:
            await eventually(
                partial(has_logged, recorder), deadline=60, what="it says that its clock is wrong"
            )
        for model in (DetectionTrace, Reception):
            async with scene.database.read() as session:
                assert await session.scalar(select(func.count()).select_from(model)) == ROWS
        if scene.database.dialect == "postgresql":
            await assert_days_are_those_of_sql(scene)
        await asyncio.gather(*(recorder.stop() for recorder in recorders))


async def assert_days_are_those_of_sql(scene: Scene) -> None:
    today = datetime.now(UTC).date()
    days = [today + timedelta(days=number) for number in range(-30, 4)]
    names = text("SELECT relname FROM pg_class WHERE relname ~ '^detection_trace_[0-9]{8}$'")
    async with scene.database.read() as session:
        made = set(await session.scalars(names))
    assert made == {f"detection_trace_{day:%Y%m%d}" for day in days}
