"""Absurd dates and time zones: counted for the device, without other effects."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from sqlalchemy import func, select, text, update

from catalog.models import (
    AuthenticationTrace,
    DetectionTrace,
    Presence,
    Reception,
    Statistic,
    StatisticDevice,
    Venue,
)
from engine.kafka.timestamps import format_instant
from engine.recorder.retention import Retention
from tests.contract.ledgers import open_scene
from tests.integration.recorder.readers import AUTHENTICATIONS, DETECTIONS, NOTIFICATIONS
from tests.integration.recorder.test_recorder import NOW, Rig, record

YEARS = range(1, 10_000, 40)
DAY = timedelta(days=1)


@pytest.fixture
async def rig(database_url: str) -> AsyncIterator[Rig]:
    async with open_scene(database_url) as scene:
        yield Rig(scene)


def retention(rig: Rig) -> Retention:
    return Retention(
        rig.scene.store, days=30, max_age=600.0, clock=lambda: datetime.now(UTC), clocks={}
    )


async def test_every_year_there_is(rig: Rig) -> None:
    """One phone caused a row of statistics and a permanent trace for each such day."""
    records = [
        rig.detections(range(n, n + 1), detected_at=f"{year:04}-06-01T10:00:00+0000")[0]
        for n, year in enumerate(YEARS)
    ]
    now = rig.detections(range(len(records), len(records) + 1), detected_at=_written(NOW))
    await rig.recorder(DETECTIONS).handle([*records, *now])
    sent = [
        rig.notification(n, str(uuid4()), detected_at=f"{year:04}-06-01T10:00:00+0000")
        for n, year in enumerate(YEARS)
    ]
    await rig.recorder(NOTIFICATIONS).handle(sent)
    signed_in = [
        record(
            AUTHENTICATIONS,
            n,
            {
                "api_key": "key-1",
                "device": {"udid": "phone"},
                "authenticated_at": f"{year:04}-06-01T10:00:00+0000",
            },
        )
        for n, year in enumerate(YEARS)
    ]
    await rig.recorder(AUTHENTICATIONS).handle(signed_in)
    assert await rig.counters() == (len(YEARS) + 1, len(YEARS))
    assert await rig.statistics() == {"venue": (1, 1, 0), "beacon": (1, 1, 0)}
    assert await rig.count(StatisticDevice) == 2
    assert await rig.count(DetectionTrace) == 1
    assert await rig.count(AuthenticationTrace) == 0
    assert await rig.count(Reception) == len(YEARS)
    assert rig.letters.reasons == []


@pytest.mark.parametrize("days", [-400, -40, 40, 400])
async def test_a_repeat_counts_once_for_any_detection(rig: Rig, days: int) -> None:
    """Retention runs between the two; it used the detection's date, and deleted the first."""
    number, dated = str(uuid4()), _written(NOW + days * DAY)
    await rig.recorder(NOTIFICATIONS).handle([rig.notification(0, number, detected_at=dated)])
    await retention(rig).run_once()
    await rig.recorder(NOTIFICATIONS).handle([rig.notification(1, number, detected_at=dated)])
    assert await rig.counters() == (0, 1)
    async with rig.scene.database.write() as session, session.begin():
        await session.execute(update(Reception).values(recorded_on=datetime.now(UTC) - 32 * DAY))
    await retention(rig).run_once()
    assert await rig.count(Reception) == 0


async def test_a_device_is_counted_once_on_its_day_however_late_the_recorder_is(rig: Rig) -> None:
    """Its records waited in Kafka for as long as TRACE_RETENTION."""
    now = datetime.now(UTC).replace(microsecond=0)
    for n, waited in enumerate((timedelta(days=29, hours=23), timedelta(days=29, hours=22))):
        (received,) = rig.detections(range(n, n + 1), detected_at=_written(now - waited))
        object.__setattr__(received, "timestamp", int((now - waited).timestamp()) * 1000)
        await rig.recorder(DETECTIONS).handle([received])
        await retention(rig).run_once()
    async with rig.scene.database.read() as session:
        rows = (await session.execute(select(Statistic.day, Statistic.devices))).all()
    assert rows
    assert {row.devices for row in rows} == {1}
    assert await rig.count(DetectionTrace) == 2


async def test_presences_of_days_to_come_do_not_stay(rig: Rig) -> None:
    rows = rig.detections(range(3), detected_at="9999-06-01T10:00:00+0000")
    await rig.recorder(DETECTIONS, trace="changes").handle(rows)
    assert await rig.count(Presence) == await rig.count(DetectionTrace) == 0
    await rig.recorder(DETECTIONS, trace="changes").handle(rig.detections(range(3, 4)))
    assert await rig.count(Presence) == await rig.count(DetectionTrace) == 1


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../../etc/passwd", "Europe", ""])
async def test_a_time_zone_that_this_host_lacks(rig: Rig, zone: str) -> None:
    async with rig.scene.database.engine.begin() as connection:
        await connection.execute(text("UPDATE venue SET time_zone = :zone"), {"zone": zone})
    await rig.recorder(DETECTIONS).handle(rig.detections(range(3)))
    await rig.recorder(NOTIFICATIONS).handle([rig.notification(0, str(uuid4()))])
    assert await rig.counters() == (3, 1)
    async with rig.scene.database.read() as session:
        assert set(await session.scalars(select(Statistic.day))) == {NOW.date()}
        assert await session.scalar(select(func.count()).select_from(Venue)) == 1


def _written(instant: datetime) -> str:
    return format_instant(instant.timestamp())
