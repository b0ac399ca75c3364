"""Deletes all rows of SQL about one device. Daily figures stay: they name no device."""

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from sqlalchemy import Select, delete, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.database import Database
from catalog.models import AuthenticationTrace, Campaign, DetectionTrace, Device, Presence, Venue
from catalog.session import with_deleted

_TRACES = (DetectionTrace, AuthenticationTrace)
# Deleted in this order. Once the device's row is locked, no recorder adds rows about it.
_TABLES = (*_TRACES, Presence)
_BATCH_ROWS = 10_000  # rows of a transaction


class DeviceRows(NamedTuple):
    """How many rows are about a device.

    Receptions and the rows of `statistic_device` are not counted. Once the device is deleted, its
    id in them identifies nobody; retention deletes them later.
    """

    devices: int = 0
    detections: int = 0
    authentications: int = 0
    presences: int = 0


class TopicRetention(NamedTuple):
    """How long Kafka keeps a message at most; `longest` is None without a limit.

    `is_known` is false if no broker reported it.
    """

    is_known: bool
    longest: timedelta | None = None


class DeviceData(NamedTuple):
    """What is stored about one device: rows in SQL, keys and fields in Redis, messages in Kafka."""

    rows: DeviceRows
    keys: int
    kafka: TopicRetention


async def campaign_ids(session: AsyncSession, company_id: int) -> Sequence[int]:
    """The ids of all campaigns that the company ever had, because claims outlive campaigns."""
    query = select(Campaign.id).join(Venue).where(Venue.company_id == company_id)
    found = await session.scalars(with_deleted(query))
    return found.all()


async def count_device(session: AsyncSession, company_id: int, udid: str) -> DeviceRows:
    """Count the rows that `erase_traces` and `erase_device` would delete."""
    device_id = await session.scalar(_device(company_id, udid))
    if device_id is None:
        return DeviceRows()
    counts = [
        await session.scalar(
            select(func.count()).select_from(table).where(table.device_id == device_id)
        )
        for table in _TABLES
    ]
    return DeviceRows(1, *(count or 0 for count in counts))


async def erase_traces(database: Database, company_id: int, udid: str) -> None:
    """Delete all but the newest few thousand of the device's traces, in short transactions.

    What was deleted before a failure stays deleted, so that the next attempt has less to do.
    """
    async with database.read() as session:
        device_id = await session.scalar(_device(company_id, udid))
    for table in _TRACES:
        of_device = table.device_id == device_id
        oldest = select(table.create_on).where(of_device).order_by(table.create_on)
        last = oldest.offset(_BATCH_ROWS - 1).limit(1)
        while True:
            async with database.write.begin() as session:
                at = await session.scalar(last)
                if at is None:
                    break
                await session.execute(delete(table).where(of_device, table.create_on <= at))


async def erase_device(session: AsyncSession, company_id: int, udid: str) -> None:
    """Delete the device and the rows that refer to it, in the session's transaction."""
    query = select(Device).where(Device.company_id == company_id, Device.udid == udid)
    device = await session.scalar(query.with_for_update())
    if device is not None:
        await session.delete(device)
        await session.flush()
        for table in _TABLES:
            await session.execute(delete(table).where(table.device_id == device.id))


def _device(company_id: int, udid: str) -> Select[int]:
    return select(Device.id).where(Device.company_id == company_id, Device.udid == udid)
