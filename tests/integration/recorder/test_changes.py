"""TRACE changes: the rows are those of the rule, however batches are cut and whatever fails."""

import random
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select

from catalog.models import DetectionTrace
from tests.integration.recorder.readers import DETECTIONS
from tests.integration.recorder.test_recorder import NOW, FailingLedger, Rig, rig

__all__ = ["rig"]

ZONES = ("near", "near", "near", "far", "immediate", "unknown")
MINUTE = timedelta(minutes=1)
FATES = ("", "", "", "", "before", "after")


def by_the_rule(journey: list[tuple[str, datetime]]) -> list[tuple[str, datetime]]:
    kept: list[tuple[str, datetime]] = []
    for zone, at in journey:
        if not kept or zone != kept[-1][0] or at - kept[-1][1] >= MINUTE:
            kept.append((zone, at))
    return kept


@pytest.mark.parametrize("seed", [1, 2])
async def test_rows_by_the_rule_over_failures_and_new_owners(rig: Rig, seed: int) -> None:
    dice = random.Random(seed)
    journey, records = [], []
    at = NOW
    for offset in range(200):
        zone = dice.choice(ZONES)
        at += timedelta(seconds=dice.choice((-5, 1, 1, 10, 55, 61)))
        journey.append((zone, at))
        milliseconds = int(at.timestamp()) * 1000
        records += rig.detections(
            range(offset, offset + 1), proximity=zone, detected_at=milliseconds
        )
    begin = 0
    while begin < len(records):
        end = begin + dice.randint(1, 30)
        failures = [dice.choice(FATES) for _ in range(3)]
        ledger: Any = FailingLedger(rig.scene.ledger, failures)
        owner = rig.recorder(DETECTIONS, trace="changes", ledger=ledger)
        await owner.handle(records[begin:end])
        if dice.random() < 0.3:  # one of old has not noticed
            await rig.recorder(DETECTIONS, trace="changes").handle(records[begin:end])
        begin = end
    async with rig.scene.database.read() as session:
        rows = list(await session.scalars(select(DetectionTrace).order_by(DetectionTrace.id)))
    assert [(row.status, row.create_on) for row in rows] == by_the_rule(journey)
    assert await rig.counters() == (200, 0)
