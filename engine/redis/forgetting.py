"""Deletes all data of one device from SQL and Redis; reports how long Kafka keeps its messages.

`proximity forget` and the interface both use it.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from catalog.database import Database
from catalog.erasure import (
    DeviceData,
    TopicRetention,
    campaign_ids,
    count_device,
    erase_device,
    erase_traces,
)
from engine.redis.claims import claims_key, places_field
from engine.redis.decisions import decisions_key
from engine.redis.devices import DeviceKey, copy_key
from engine.redis.store import RedisStore


class DeviceEraser(RedisStore):
    """Counts or deletes a device's claims, decisions, the copy of its record, and its rows.

    `retention` reads Kafka's. Raises the errors of SQL and Redis.
    """

    def __init__(
        self,
        *,
        database: Database,
        retention: Callable[[], Awaitable[TopicRetention]],
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._database = database
        self._retention = retention

    async def count(self, device: DeviceKey) -> DeviceData:
        """The data that `erase` would delete, and how long Kafka keeps the messages."""
        async with self._database.read() as session:
            rows = await count_device(session, device.company_id, device.udid)
            campaigns = await campaign_ids(session, device.company_id)
        keys = await self._in_redis(device, campaigns, only_count=True)
        return DeviceData(rows, keys, await self._retention())

    async def erase(self, device: DeviceKey) -> DeviceData:
        """Delete the data, and report what there was.

        Safe to repeat: after an error some traces may be deleted already.
        """
        kafka = await self._retention()
        async with self._database.read() as session:
            rows = await count_device(session, device.company_id, device.udid)
        await erase_traces(self._database, device.company_id, device.udid)
        async with self._database.write.begin() as session:
            await erase_device(session, device.company_id, device.udid)
            campaigns = await campaign_ids(session, device.company_id)
            # Before the commit: if Redis is down the device stays in SQL, so a retry finds it.
            keys = await self._in_redis(device, campaigns, only_count=False)
        return DeviceData(rows, keys, kafka)

    async def _in_redis(
        self, device: DeviceKey, campaigns: Iterable[int], *, only_count: bool
    ) -> int:
        """Count or delete the keys and claims in Redis. Returns how many existed."""
        claims = claims_key(self._prefix, device.udid)
        on_key, on_field = ("EXISTS", "HEXISTS") if only_count else ("UNLINK", "HDEL")
        pipeline = self._pipeline()
        for key in (copy_key(self._prefix, device), decisions_key(self._prefix, device)):
            pipeline.execute_command(on_key, key)
        for field in (places_field(device.company_id), *map(str, campaigns)):
            pipeline.execute_command(on_field, claims, field)
        return int(sum(await self._answer(pipeline.execute())))
