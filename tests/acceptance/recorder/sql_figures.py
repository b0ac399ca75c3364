"""Reads SQL's figures without the product's statements."""

from collections import defaultdict
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from catalog.database import Database
from tests.acceptance.recorder.flood import Device, Expected, Print


async def assert_written(database: Database, expected: Expected) -> None:
    """Assert that every row is as expected."""
    devices = {
        row.id: (row.company_id, row.udid)
        for row in await _rows(database, "SELECT id, company_id, udid FROM device")
    }
    await _assert_counters(database, expected)
    await _assert_traces(database, devices, expected)
    receptions = {
        str(UUID(str(row.notification))): (*devices[row.device_id], row.campaign_id)
        for row in await _rows(database, "SELECT * FROM reception")
    }
    assert receptions == expected.receptions
    await _assert_figures(database, expected)


async def recorded(database: Database) -> int:
    """How many records are recorded, of all topics; -1 while SQL does not answer."""
    try:
        (row,) = await _rows(database, "SELECT sum(next_offset) AS done FROM recorder_offset")
    except (SQLAlchemyError, OSError):
        return -1
    return int(row.done or 0)


async def _assert_counters(database: Database, expected: Expected) -> None:
    for counter in ("nb_beacon", "nb_campaign"):
        query = f"SELECT company_id, udid, {counter} AS figure FROM device WHERE {counter} <> 0"
        found = {(r.company_id, r.udid): r.figure for r in await _rows(database, query)}
        assert found == dict(getattr(expected, counter)), counter


async def _assert_traces(
    database: Database, devices: dict[int, Device], expected: Expected
) -> None:
    detections: dict[Device, Print] = defaultdict(Print)
    query = "SELECT device_id, venue_id, beacon_id, status, create_on FROM detection_trace"
    async for row in _stream(database, query):
        device = devices[row.device_id]
        detections[device].add(row.venue_id, row.beacon_id, row.status, _ms(row.create_on))
    assert detections == expected.detections
    authentications: dict[Device, Print] = defaultdict(Print)
    async for row in _stream(database, "SELECT device_id, create_on, ip FROM authentication_trace"):
        authentications[devices[row.device_id]].add(_ms(row.create_on), row.ip)
    assert authentications == expected.authentications


async def _assert_figures(database: Database, expected: Expected) -> None:
    found = {
        (_day(row.day), row.kind, row.ref): (row.detections, row.notifications, row.devices)
        for row in await _rows(database, "SELECT * FROM statistic")
    }
    assert found == {
        key: (*figures, len(expected.visitors[key])) for key, figures in expected.figures.items()
    }


async def _rows(database: Database, query: str) -> list[Any]:
    async with database.engine.connect() as connection:
        return list(await connection.execute(text(query)))


async def _stream(database: Database, query: str) -> Any:
    async with database.engine.connect() as connection:
        async for row in await connection.stream(text(query)):
            yield row


def _ms(instant: datetime | str) -> int:
    if isinstance(instant, str):  # as SQLite keeps it
        instant = datetime.fromisoformat(instant)
    aware = instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant
    return round(aware.timestamp() * 1000)


def _day(day: date | str) -> date:
    return date.fromisoformat(day) if isinstance(day, str) else day
