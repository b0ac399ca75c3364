"""Deletes all rows of SQL about one device. Daily figures stay: they name no device."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Select, delete, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.models import (
    AuthenticationTrace,
    Campaign,
    DetectionTrace,
    Device,
    Presence,
    Venue,
)
from catalog.soft_deletion import with_deleted

# Deleted in this order. Once the device's row is locked, no recorder adds rows about it.
_TABLES = (DetectionTrace, AuthenticationTrace, Presence)


class DeviceRows(NamedTuple):
    """How many rows are about a device.

    Receptions and the rows of `statistic_device` are not counted. Once the device is deleted, its
    id in them identifies nobody; retention deletes them later.
    """

    devices: int
    detections: int
    authentications: int
    presences: int


async def campaign_ids(session: AsyncSession, company_id: int) -> Sequence[int]:
    """The ids of all campaigns that the company ever had, because claims outlive campaigns."""
    query = select(Campaign.id).join(Venue).where(Venue.company_id == company_id)
    found = await session.scalars(with_deleted(query))
    return found.all()


async def count_device(session: AsyncSession, company_id: int, udid: str) -> DeviceRows:
    """Count the rows that `forget_device` would delete."""
    device_id = await session.scalar(_device(company_id, udid))
    if device_id is None:
        return DeviceRows(0, 0, 0, 0)
    counts = [
        await session.scalar(
            select(func.count()).select_from(table).where(table.device_id == device_id)
        )
        for table in _TABLES
    ]
    return DeviceRows(1, *(count or 0 for count in counts))


async def forget_device(session: AsyncSession, company_id: int, udid: str) -> DeviceRows:
    """Delete the device and the rows that refer to it, in the session's transaction."""
    device_id = await session.scalar(_device(company_id, udid).with_for_update())
    if device_id is None:
        return DeviceRows(0, 0, 0, 0)
    await session.execute(delete(Device).where(Device.id == device_id))
    deleted = []
    for table in _TABLES:
        done = await session.execute(delete(table).where(table.device_id == device_id))
        deleted.append(max(0, getattr(done, "rowcount", 0)))
    return DeviceRows(1, *deleted)


def _device(company_id: int, udid: str) -> Select[int]:
    return select(Device.id).where(Device.company_id == company_id, Device.udid == udid)
