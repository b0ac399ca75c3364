"""Deletes all data of one device from SQL and Redis; reports how long Kafka keeps its messages.

`proximity forget` and the interface both use it. Daily figures, receptions and the rows of
`statistic_device` stay: an id without its device identifies nobody, and retention deletes them.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, delete, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from api.reports import HeldData, TopicRetention
from catalog.database import Database
from catalog.models import AuthenticationTrace, Campaign, DetectionTrace, Device, Presence, Venue
from catalog.session import with_deleted
from engine.redis.claims import claims_key, places_field
from engine.redis.decisions import decisions_key
from engine.redis.devices import DeviceKey, copy_key
from engine.redis.store import RedisStore

_TRACES = (DetectionTrace, AuthenticationTrace)
# Deleted in this order. Once the device's row is locked, no recorder adds rows about it.
_TABLES = (*_TRACES, Presence)
_BATCH_ROWS = 10_000  # rows of a transaction


@dataclass(kw_only=True, eq=False)
class DeviceEraser(RedisStore):
    """Counts or deletes a device's claims, decisions, the copy of its record, and its rows.

    `retention` reads Kafka's. Raises the errors of SQL and Redis.
    """

    database: Database
    retention: Callable[[], Awaitable[TopicRetention]]

    async def count(self, device: DeviceKey) -> HeldData:
        """The data that `erase` would delete, and how long Kafka keeps the messages."""
        async with self.database.read() as session:
            rows = await _count_rows(session, device)
            keys = await self._in_redis(session, device, only_count=True)
        return HeldData(keys, await self.retention(), *rows)

    async def erase(self, device: DeviceKey) -> HeldData:
        """Delete the data, and report what there was.

        Safe to repeat: after an error some traces may be deleted already.
        """
        kafka = await self.retention()
        async with self.database.read() as session:
            rows = await _count_rows(session, device)
        await self._erase_traces(device)
        async with self.database.write.begin() as session:
            found = await session.scalar(_of(device).with_for_update())
            if found is not None:
                await session.delete(found)
                await session.flush()
                for table in _TABLES:
                    await session.execute(delete(table).where(table.device_id == found.id))
            # Before the commit: if Redis is down the device stays in SQL, so a retry finds it.
            keys = await self._in_redis(session, device, only_count=False)
        return HeldData(keys, kafka, *rows)

    async def _erase_traces(self, device: DeviceKey) -> None:
        """Delete all but the newest few thousand of the traces, in short transactions."""
        async with self.database.read() as session:
            number = await session.scalar(_of(device, Device.id))
        for table in _TRACES:
            of_device = table.device_id == number
            oldest = select(table.create_on).where(of_device).order_by(table.create_on)
            last = oldest.offset(_BATCH_ROWS - 1).limit(1)
            while True:
                async with self.database.write.begin() as session:
                    at = await session.scalar(last)
                    if at is None:
                        break
                    await session.execute(delete(table).where(of_device, table.create_on <= at))

    async def _in_redis(self, session: AsyncSession, device: DeviceKey, *, only_count: bool) -> int:
        """Count or delete the keys and claims in Redis. Returns how many existed."""
        # Claims outlive campaigns.
        query = select(Campaign.id).join(Venue).where(Venue.company_id == device.company_id)
        campaigns = await session.scalars(with_deleted(query))
        claims = claims_key(self.prefix, device.udid)
        on_key, on_field = ("EXISTS", "HEXISTS") if only_count else ("UNLINK", "HDEL")
        pipeline = self._pipeline()
        for key in (copy_key(self.prefix, device), decisions_key(self.prefix, device)):
            pipeline.execute_command(on_key, key)
        for field in (places_field(device.company_id), *map(str, campaigns)):
            pipeline.execute_command(on_field, claims, field)
        return int(sum(await self._answer(pipeline.execute())))


def _of(device: DeviceKey, what: Any = Device) -> Select[Any]:
    query = select(what)
    return query.where(Device.company_id == device.company_id, Device.udid == device.udid)


async def _count_rows(session: AsyncSession, device: DeviceKey) -> list[int]:
    """How many rows of devices, and of each of _TABLES, `erase` would delete."""
    number = await session.scalar(_of(device, Device.id))
    counts = [int(number is not None)]
    for table in _TABLES:
        count = select(func.count()).select_from(table).where(table.device_id == number)
        counts.append(await session.scalar(count) or 0)
    return counts
