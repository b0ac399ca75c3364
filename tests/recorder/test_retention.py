"""Retention on both databases: what is deleted, and what is never deleted."""

import asyncio
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from asyncpg.exceptions import InsufficientPrivilegeError, LockNotAvailableError
from sqlalchemy import func, select, text, update
from sqlalchemy.exc import DBAPIError, ProgrammingError

from catalog.models import AuthenticationTrace, DetectionTrace, Presence, Reception, Statistic
from catalog.models import StatisticDevice as StatisticDeviceModel
from engine.process.failures import database_may_recover
from engine.process.health import ClockSkew
from engine.process.lifecycle import cancel
from engine.process.metrics import Metrics
from engine.recorder import retention as retention_module
from engine.recorder.ledger import DetectionRow, Figures, LedgerTransaction
from engine.recorder.retention import Retention
from tests.recorder.scene import Scene, open_scene

NOW = datetime(2026, 11, 20, 10, 30, 15, 123000, tzinfo=UTC)
TODAY = NOW.date()


async def test_retention_keeps_the_last_days(scene: Scene):
    days = [TODAY - timedelta(days=age) for age in (40, 3, 2, 0)]
    await fill(scene, days)
    await retention(scene).run_once()
    kept = {TODAY - timedelta(days=2), TODAY}
    async with scene.database.read() as session:
        for model in (DetectionTrace, AuthenticationTrace, Reception, Presence):
            instants = (await session.scalars(select(model.create_on))).all()
            assert {instant.date() for instant in instants} == kept, model
        # A record that waited for a recorder may still be counted for a day before.
        guarded = kept | {TODAY - timedelta(days=3)}
        assert set(await session.scalars(select(StatisticDeviceModel.day))) == guarded
        assert await session.scalar(select(func.count()).select_from(Statistic)) == len(days)


@pytest.mark.parametrize("ahead", [timedelta(days=32), timedelta(days=-32)])
async def test_nothing_is_deleted_while_a_clock_is_wrong(scene: Scene, ahead: timedelta):
    await fill(scene, [TODAY - timedelta(days=40), TODAY])
    await retention(scene, redis=NOW + ahead).run_once()
    for model in (DetectionTrace, AuthenticationTrace, Reception, Presence, StatisticDeviceModel):
        assert await scene.count(model) == 2, model
    await retention(scene).run_once()
    assert await scene.count(Reception) == 1


def retention(scene: Scene, *, redis: datetime = NOW) -> Retention:
    """Two days are kept. The clocks are fixed."""

    async def redis_clock() -> float:
        return redis.timestamp()

    clocks = ClockSkew({"redis": redis_clock}, Metrics().clock_skew, clock=NOW.timestamp)
    return Retention(ledger=scene.ledger, days=2, max_age=600.0, clocks=clocks)


@pytest.fixture(autouse=True)
def sql_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    async def now(_transaction: LedgerTransaction) -> datetime:
        return NOW

    monkeypatch.setattr(LedgerTransaction, "now", now)


async def fill(scene: Scene, days: list[date]) -> None:
    """A row of each kind for each day, made and recorded on it."""
    await scene.ledger.create_days(min(days), max(days))
    for number, day in enumerate(days):
        at = datetime.combine(day, NOW.timetz())
        async with scene.ledger.transaction() as transaction:
            await transaction.add_detections([DetectionRow(1, 2, 3, "near", at, None)])
            authentication = {"device_id": 1, "application_id": 4, "create_on": at, "ip": None}
            await transaction.add_authentications([authentication])
            reception = {"id": uuid4(), "device_id": 1, "campaign_id": 2, "create_on": at}
            await transaction.add_counted("reception", [reception])
            await transaction.set_presences({(1, "beacon", number): ("far", at)})
            await transaction.add_statistics({(day, "venue", 1): Figures(1, devices={1})})
    async with scene.database.write() as session, session.begin():
        for model in (Reception, Presence):
            await session.execute(update(model).values(recorded_on=model.create_on))


async def test_a_slow_reader_does_not_stop_the_writers(postgres_url: str) -> None:
    now = datetime.now(UTC)
    window = (now.date() - timedelta(days=29), now.date())
    async with open_scene(postgres_url) as scene:  # it has 31 days
        async with scene.database.read() as reader:
            await reader.execute(text("SELECT count(*) FROM detection_trace"))
            dropping = asyncio.create_task(scene.ledger.delete_old(*window))
            async with asyncio.timeout(90):
                for number in range(20):
                    async with scene.ledger.transaction() as transaction:
                        await transaction.add_detections(
                            [DetectionRow(number, 1, 1, "near", now, None)]
                        )
            (outcome,) = await asyncio.gather(dropping, return_exceptions=True)
        assert isinstance(outcome, DBAPIError), outcome
        assert getattr(outcome.orig, "sqlstate", None) == LockNotAvailableError.sqlstate
        assert database_may_recover(outcome)
        assert await scene.ledger.delete_old(*window) == 4


async def test_no_error_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention_module, "_RETRY_PAUSE", 0.0)
    failures: list[Exception] = [ProgrammingError("", None, InsufficientPrivilegeError(""))]
    failures.append(TimeoutError())
    done = asyncio.Event()

    async def run_once(_retention: Retention) -> None:
        if failures:
            raise failures.pop()
        done.set()

    monkeypatch.setattr(Retention, "run_once", run_once)
    unused: Any = None
    task = asyncio.create_task(
        Retention(ledger=unused, days=30, max_age=300.0, clocks=unused).run()
    )
    async with asyncio.timeout(60):  # each failure logs a traceback, slowly on a busy machine
        await done.wait()
    assert not task.done()
    await cancel([task])
