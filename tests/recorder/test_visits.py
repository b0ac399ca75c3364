"""Presence in SQL: visits a day and place and their lengths, each event once, without persons."""

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import select

from catalog.models import CountedVisitEvent, Device, VisitStatistic
from engine.kafka.messages import format_instant
from tests.recorder.scene import NOW, PRESENCE, Rig


def number(n: int) -> str:
    return str(UUID(int=n))


async def test_visits_and_their_lengths_are_counted(rig: Rig) -> None:
    beacon: dict[str, Any] = {"place": {"kind": "beacon", "id": rig.scene.beacon.id, "name": ""}}
    lengths = (0, 0.99, 1, 4.99, 5, 29, 30, 239, 240, 10_000)
    records = [rig.presence(n, number(n)) for n in range(12)]
    records += [rig.presence(n, number(n), each) for n, each in enumerate(lengths, 12)]
    records += [rig.presence(30, number(30), **beacon), rig.presence(31, number(31), 2, **beacon)]
    records += [rig.presence(32, number(32), type="dwell")]
    await rig.recorder(PRESENCE).handle(records)
    assert await rig.visits() == {
        ("venue", 0): (12, 2, 59),
        ("venue", 1): (0, 2, 60 + 299),
        ("venue", 5): (0, 1, 300),
        ("venue", 15): (0, 1, 29 * 60),
        ("venue", 30): (0, 1, 1800),
        ("venue", 120): (0, 1, 239 * 60),
        ("venue", 240): (0, 2, 10_240 * 60),
        ("beacon", 0): (1, 0, 0),
        ("beacon", 1): (0, 1, 120),
    }
    assert rig.letters.reasons == []


async def test_a_visit_is_of_the_day_of_its_entry_at_the_venue(rig: Rig) -> None:
    """Paris: an hour before midnight there, and the exit a day later."""
    late = NOW.astimezone(ZoneInfo("Europe/Paris")).replace(hour=23, minute=30) - timedelta(days=3)
    entered: dict[str, Any] = {"entered_at": format_instant(late.timestamp())}
    after = [rig.presence(0, number(1), **entered), rig.presence(1, number(2), 1500, **entered)]
    await rig.recorder(PRESENCE).handle(after)
    async with rig.scene.database.read() as session:
        days = set(await session.scalars(select(VisitStatistic.day)))
    assert days == {late.date()}


async def test_test_devices_and_odd_clocks_are_left_out(rig: Rig) -> None:
    far = (NOW + timedelta(days=3)).timestamp()
    await rig.recorder(PRESENCE).handle(
        [
            rig.presence(0, number(1), device={"udid": "of-the-team"}),
            rig.presence(1, number(2), 3, device={"udid": "of-the-team"}),
            rig.presence(2, number(3), entered_at=format_instant(far)),
            rig.presence(3, number(4), entered_at="2001-01-01T00:00:00+0000"),
            rig.presence(4, number(5)),
        ]
    )
    assert await rig.visits() == {("venue", 0): (1, 0, 0)}


async def test_no_person_is_stored(rig: Rig) -> None:
    before = await rig.count(Device)
    await rig.recorder(PRESENCE).handle([rig.presence(0, number(1), device={"udid": "of nobody"})])
    assert await rig.count(Device) == before
    columns = {column.name for column in CountedVisitEvent.__table__.columns}
    assert columns == {"id", "company_id", "at", "recorded_on"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"type": "left"},
        {"type": "exit"},
        {"place": {"kind": "nfc", "id": 1, "name": ""}},
        {"device": {"udid": "a\0b"}},
        {"entered_at": "yesterday"},
        {"id": "7"},
        {"venue": {"id": 2**63, "name": ""}},
        {"type": "exit", "duration_seconds": -1},
    ],
)
async def test_what_is_no_event_is_a_dead_letter(rig: Rig, wrong: dict[str, Any]) -> None:
    bad = rig.presence(0, str(uuid4()), **wrong)
    await rig.recorder(PRESENCE).handle([bad, rig.presence(1, number(1))])
    assert len(rig.letters.reasons) == 1
    assert await rig.visits() == {("venue", 0): (1, 0, 0)}
