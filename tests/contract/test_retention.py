"""Retention on both databases: what is deleted, and what is never deleted."""

import asyncio
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import func, select, update

from catalog.models import (
    AuthenticationTrace,
    DetectionTrace,
    Presence,
    Reception,
    Statistic,
)
from catalog.models import StatisticDevice as StatisticDeviceModel
from engine.recorder.retention import (
    DAYS_AHEAD,
    MOST_SKEW,
    Retention,
    RetentionStore,
    RetentionWindow,
)
from engine.recorder.rows import (
    VENUE,
    AuthenticationRow,
    DetectionRow,
    FigureIncrements,
    PresenceKey,
    PresenceState,
    StatisticKey,
)
from tests.contract.ledgers import NOW, Scene, count, reception

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


@pytest.mark.parametrize("server", ["sql", "redis"])
@pytest.mark.parametrize("ahead", [timedelta(days=32), timedelta(days=-32)])
async def test_nothing_is_deleted_while_a_clock_is_wrong(
    scene: Scene, server: str, ahead: timedelta
):
    """Of this process, of SQL, of Redis: whichever it is, two of them are far from each other."""
    await fill(scene, [TODAY - timedelta(days=40), TODAY])
    wrong = {"redis": NOW + ahead} if server == "redis" else {"ours": NOW + ahead}
    await retention(scene, **wrong).run_once()
    for model in (DetectionTrace, AuthenticationTrace, Reception, Presence, StatisticDeviceModel):
        assert await count(scene, model) == 2, model
    slow = Retention(
        StoreAt(scene.store, NOW),
        days=2,
        max_age=600.0,
        clock=iter([NOW - MOST_SKEW, NOW + MOST_SKEW] * 2).__next__,  # the answer took long
        clocks={},
    )
    await slow.run_once()
    assert await count(scene, Reception) == 1


async def test_what_guards_against_repeats_is_kept_by_when_it_was_recorded(scene: Scene):
    """However old or new the detections say that they are."""
    instants = [datetime(1, 1, 1, tzinfo=UTC), NOW, datetime(9999, 12, 31, tzinfo=UTC)]
    ids = [uuid4() for _ in instants]
    async with scene.ledger.transaction() as transaction:
        await transaction.add_receptions(
            [reception(*each) for each in zip(ids, instants, strict=True)]
        )
        for number, at in enumerate(instants):
            await transaction.set_presences({PresenceKey(1, number): PresenceState("far", at)})
        now = await transaction.now()
    await retention(scene, sql=now + timedelta(days=2), ours=now + timedelta(days=2)).run_once()
    async with scene.ledger.transaction() as transaction:
        assert await transaction.counted_notifications(ids) == set(ids)
    assert await count(scene, Presence) == 3
    await retention(scene, sql=now + timedelta(days=4), ours=now + timedelta(days=4)).run_once()
    assert await count(scene, Reception) == await count(scene, Presence) == 0


async def test_no_trace_is_kept_for_ever(scene: Scene):
    """Not even one of a day that never comes."""
    await fill(scene, [TODAY])
    for far in (NOW + timedelta(days=DAYS_AHEAD + 1), datetime(9999, 12, 31, tzinfo=UTC)):
        async with scene.ledger.transaction() as transaction:
            await transaction.add_detections([DetectionRow(1, 2, 3, "near", far, None)])
            await transaction.add_authentications([AuthenticationRow(1, 4, far, None)])
    await retention(scene).run_once()
    for model in (DetectionTrace, AuthenticationTrace):
        assert await count(scene, model) == 1, model


class StoreAt:
    """A store whose clock stands still."""

    def __init__(self, store: RetentionStore, now: datetime) -> None:
        self._store = store
        self._now = now

    async def now(self) -> datetime:
        return self._now

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def retention(
    scene: Scene, *, sql: datetime = NOW, ours: datetime = NOW, redis: datetime = NOW
) -> Retention:
    """Two days are kept. The clocks stand still; that of Redis agrees with ours if not told."""
    if redis is NOW:
        redis = ours

    async def redis_clock() -> datetime:
        return redis

    store: Any = StoreAt(scene.store, sql)
    return Retention(
        store, days=2, max_age=600.0, clock=lambda: ours, clocks={"redis": redis_clock}
    )


async def fill(scene: Scene, days: list[date]) -> None:
    """A row of each kind for each day, made and recorded on it."""
    for number, day in enumerate(days):
        at = datetime.combine(day, NOW.timetz())
        async with scene.ledger.transaction() as transaction:
            await transaction.add_detections([DetectionRow(1, 2, 3, "near", at, None)])
            await transaction.add_authentications([AuthenticationRow(1, 4, at, None)])
            await transaction.add_receptions([reception(uuid4(), at)])
            await transaction.set_presences({PresenceKey(1, number): PresenceState("far", at)})
            figure = StatisticKey(day, VENUE, 1)
            await transaction.add_statistics({figure: FigureIncrements(1)}, {figure: {1}})
    async with scene.database.write() as session, session.begin():
        for model in (Reception, Presence):
            await session.execute(update(model).values(recorded_on=model.create_on))


async def test_days_are_made_once_whoever_makes_them(scene: Scene):
    first, last = TODAY - timedelta(days=1), TODAY + timedelta(days=DAYS_AHEAD)
    await fill(scene, [TODAY])
    made = await asyncio.gather(*(scene.store.create_days(first, last) for _ in range(3)))
    expected = 2 * 5 if scene.database.dialect == "postgresql" else 0
    assert sum(made) == expected
    assert await count(scene, DetectionTrace) == 1
    limit = datetime.combine(TODAY + timedelta(days=1), datetime.min.time(), UTC)
    await scene.store.delete_outside(RetentionWindow(limit, limit + timedelta(days=9), TODAY))
    assert await count(scene, DetectionTrace) == 0
