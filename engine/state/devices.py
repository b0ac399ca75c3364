"""What the catalog knows of devices, for the connector role: Redis in front of SQL.

Neither may stop a call: what cannot be found out in time is not known, and the call goes.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec
import structlog
from redis.asyncio import Redis, RedisCluster
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.database import Database
from catalog.models import Device
from engine.failures import database_may_recover, describe, redis_may_recover
from engine.metrics import Metrics

log = structlog.get_logger(__name__)

_LIFE_SECONDS = 30
_DEADLINE = 0.5
_PAUSE_SECONDS = 5.0  # SQL that failed is left alone for so long
_LARGEST_QUERY = 500


class DeviceKey(NamedTuple):
    """A device is one company's."""

    company_id: int
    udid: str


class KnownToCatalog(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A device's record, as far as a call needs it."""

    id: int | None
    id_connector: int | None
    test: bool


NOT_ASKED = KnownToCatalog(None, None, False)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(KnownToCatalog | None).decode

Found = dict[DeviceKey, KnownToCatalog | None]


class _Batch:
    """What is looked up together; `found` once it has been."""

    def __init__(self) -> None:
        self.keys: set[DeviceKey] = set()
        self.found: Found | None = None


class DeviceLookup:
    """Finds devices, a batch at a time. What was found, or was not, is believed for 30 s.

    Safe to share between tasks: those that ask while an answer is under way are one batch.
    """

    def __init__(
        self,
        *,
        redis: Redis | RedisCluster,
        prefix: str,
        database: Database,
        metrics: Metrics,
        clock: Callable[[], float],
    ) -> None:
        self._redis = redis
        self._prefix = prefix
        self._database = database
        self._metrics = metrics
        self._clock = clock
        self._sql_away_until = float("-inf")
        self._next = _Batch()
        self._asking = asyncio.Lock()

    async def find(self, keys: Collection[DeviceKey]) -> Mapping[DeviceKey, KnownToCatalog | None]:
        """Each key's record, among others'; None: the catalog has none; NOT_ASKED: it did not
        answer in time."""
        batch = self._next
        batch.keys.update(keys)
        async with self._asking:
            if batch.found is None:  # else whoever was first has asked for all
                self._next = _Batch()
                batch.found = await self._find(list(batch.keys))
        return batch.found

    async def _find(self, wanted: list[DeviceKey]) -> Found:
        found = await self._remembered(wanted)
        missing = [key for key in wanted if key not in found]
        if missing:
            stored = await self._stored(missing)
            if stored is None:
                found.update(dict.fromkeys(missing, NOT_ASKED))
            else:
                found.update(stored)
                await self._remember(stored)
        return found

    async def _remembered(self, keys: list[DeviceKey]) -> Found:
        pipeline: Any = self._redis.pipeline(transaction=False)
        for key in keys:
            pipeline.get(self._name(key))
        values = await self._run(pipeline)
        found: Found = {}
        for key, value in zip(keys, values or (), strict=bool(values)):
            if value is not None:
                with suppress(msgspec.DecodeError):  # not ours: SQL is asked instead
                    found[key] = _decode(value)
        return found

    async def _remember(self, stored: Found) -> None:
        pipeline: Any = self._redis.pipeline(transaction=False)
        for key, record in stored.items():
            pipeline.set(self._name(key), _encode(record), ex=_LIFE_SECONDS)
        await self._run(pipeline)

    async def _run(self, pipeline: Any) -> list[Any] | None:
        try:
            async with asyncio.timeout(_DEADLINE):
                return list(await pipeline.execute())
        except Exception as error:  # sorted: goes without, or up and stops the process
            if not redis_may_recover(error):
                raise
            self._metrics.redis_errors.inc()
            log.warning("devices are not remembered now", error=describe(error))
            return None

    async def _stored(self, keys: list[DeviceKey]) -> Found | None:
        """What SQL has; None when it does not answer."""
        now = self._clock()
        if now < self._sql_away_until:
            return None
        try:
            async with asyncio.timeout(_DEADLINE), self._database.glance() as session:
                return await _select(session, keys)
        except Exception as error:  # sorted: goes without, or up and stops the process
            if not database_may_recover(error):
                raise
            self._sql_away_until = now + _PAUSE_SECONDS
            log.warning("SQL is not asked for devices now", error=describe(error))
            return None

    def _name(self, key: DeviceKey) -> str:
        return f"{self._prefix}device:{key.company_id}:{key.udid}"


async def _select(session: AsyncSession, keys: list[DeviceKey]) -> Found:
    found: Found = dict.fromkeys(keys)
    by_company: dict[int, list[str]] = {}
    for company_id, udid in keys:
        by_company.setdefault(company_id, []).append(udid)
    for company_id, udids in by_company.items():
        for start in range(0, len(udids), _LARGEST_QUERY):
            rows = await session.execute(
                select(Device.udid, Device.id, Device.id_connector, Device.test).where(
                    Device.company_id == company_id,
                    Device.udid.in_(udids[start : start + _LARGEST_QUERY]),
                )
            )
            for udid, id_, id_connector, test in rows:
                found[DeviceKey(company_id, udid)] = KnownToCatalog(id_, id_connector, test)
    return found
