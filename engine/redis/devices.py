"""Looks up the catalog's records of devices: in memory, then in SQL.

Memory keeps a record for 4 s, so that a change in SQL by an authentication, a detection or an edit
is known within 5 s. Redis has copies for the time in which SQL does not answer. Neither server may
stop a notification: it leaves without the fields that cannot be looked up in time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import JSON, String, bindparam, cast, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from catalog.bounds import chunked
from catalog.database import Database
from catalog.index.drain import OUTAGES
from catalog.models import Device
from catalog.redis_connection import RedisClient
from engine.kafka.messages import KnownDevice, ReceivedDevice
from engine.process.failures import database_may_recover, redis_may_recover
from engine.process.metrics import Metrics
from rules.decision import NOT_ASKED

FRESH_SECONDS = 4.0
_MOST_REMEMBERED = 40_000  # devices
# Time zones that are only needed to refuse a detection: at a place where a device stays through
# the quiet hours, nobody is asked for each detection.
_ZONE_SECONDS = 60.0
_COPY_SECONDS = 3600  # how long a copy may be used while SQL is down
_DEADLINE = 0.5
_DEADLINE_A_DEVICE = 0.0005  # added for a large batch, so that a busy SQL does not count as down
_PAUSE_SECONDS = 5.0  # after a failure SQL gets no queries for so long
_LARGEST_QUERY = 1000
_LOOKING_UP = "looking devices up"


class DeviceKey(msgspec.Struct, frozen=True, order=True, gc=False, cache_hash=True):
    """A company and the udid of a device there."""

    company_id: int
    udid: str


class DeviceRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The fields of a device's record that notifications and calls need."""

    id: int | None
    id_connector: int | None
    test: bool
    token_push: str | None = None
    name: str | None = None
    version: str | None = None
    model: str | None = None
    time_zone: str | None = None


NO_ANSWER = DeviceRecord(None, None, False)
_NEVER_READ: tuple[float, DeviceRecord | None] = (float("-inf"), None)
_encode_copy = msgspec.json.Encoder().encode
decode_copy = msgspec.json.Decoder(DeviceRecord).decode
DeviceRecords = Mapping[DeviceKey, DeviceRecord | None]


def completed_device(device: ReceivedDevice, known: DeviceRecord | None) -> KnownDevice:
    """The device as received, with missing fields but its time zone filled in from the record."""
    if known is None:
        known = NO_ANSWER
    return KnownDevice(
        udid=device.udid,
        name=known.name if device.name is None else device.name,
        version=known.version if device.version is None else device.version,
        model=known.model if device.model is None else device.model,
        token_push=known.token_push if device.token_push is None else device.token_push,
        id_connector=known.id_connector if device.id_connector is None else device.id_connector,
        time_zone=device.time_zone,
        id=known.id,
    )


@dataclass(kw_only=True, eq=False)
class DeviceLookup:
    """Finds lists of devices. `clock` gives epoch seconds."""

    redis: RedisClient
    prefix: str
    database: Database
    metrics: Metrics
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._dialect = self.database.dialect
        # A connection without a session: this is asked in each cycle. No device is soft-deleted.
        self._sql = self.database.engine
        if self._dialect == "postgresql":
            self._sql = self._sql.execution_options(isolation_level="AUTOCOMMIT")
        self._sql_down_until = float("-inf")
        self._recent: dict[DeviceKey, tuple[float, DeviceRecord | None]] = {}  # with the time

    async def find(self, keys: Collection[DeviceKey]) -> DeviceRecords:
        """The records of the keys; None if the catalog has no such device.

        NO_ANSWER stands for a record that could not be read in time.
        """
        found, missing = dict[DeviceKey, DeviceRecord | None](), set[DeviceKey]()
        now, recent = self.clock(), self._recent
        for key in keys:
            read_at, record = recent.get(key, _NEVER_READ)
            if 0 <= now - read_at < FRESH_SECONDS:
                found[key] = record
            else:
                missing.add(key)
        if missing:
            found.update(await self._read(list(missing)))
        return found

    def remembered_time_zone(self, key: DeviceKey) -> str | None:
        """The device's time zone as found within the last minute, else NOT_ASKED."""
        read_at, record = self._recent.get(key, _NEVER_READ)
        if not 0 <= self.clock() - read_at < _ZONE_SECONDS:
            return NOT_ASKED
        return None if record is None else record.time_zone

    async def _read(self, wanted: list[DeviceKey]) -> DeviceRecords:
        stored, now = await self._stored(wanted), self.clock()
        if stored is None:
            return await self._copies(wanted)
        if len(self._recent) > _MOST_REMEMBERED:
            self._recent.clear()
        self._recent.update((key, (now, record)) for key, record in stored.items())
        pipeline: Any = self.redis.pipeline(transaction=False)
        for key, record in stored.items():
            if record is not None:
                copy = _encode_copy(record)
                name = copy_key(self.prefix, key)
                pipeline.execute_command("SET", name, copy, "EX", _COPY_SECONDS)
        if len(pipeline):
            await self._run(pipeline.execute())
        return stored

    async def _copies(self, keys: list[DeviceKey]) -> DeviceRecords:
        pipeline: Any = self.redis.pipeline(transaction=False)
        for key in keys:
            pipeline.get(copy_key(self.prefix, key))
        copies: dict[DeviceKey, DeviceRecord | None] = dict.fromkeys(keys, NO_ANSWER)
        for key, value in zip(keys, await self._run(pipeline.execute()), strict=False):
            if value is not None:
                with suppress(msgspec.DecodeError):  # of another version
                    copies[key] = decode_copy(value)
        return copies

    async def _run(self, call: Awaitable[Any]) -> list[Any]:
        """The answers of Redis; none while it is down."""
        try:
            async with asyncio.timeout(_DEADLINE):
                answers = list(await call)
        except Exception as error:  # sorted: goes without, or up and stops the process
            if not redis_may_recover(error):
                raise
            self.metrics.redis_errors.inc()
            return []
        return answers

    async def _stored(self, keys: list[DeviceKey]) -> DeviceRecords | None:
        """The records in SQL; None if SQL does not answer."""
        now = self.clock()
        if 0 < self._sql_down_until - now <= _PAUSE_SECONDS:
            return None
        deadline = _DEADLINE + len(keys) * _DEADLINE_A_DEVICE
        try:
            async with asyncio.timeout(deadline), self._sql.connect() as connection:
                found = await _select(connection, self._dialect, keys)
        except OUTAGES as error:
            self._sql_down_until = now + _PAUSE_SECONDS
            # An outage is not counted: a look-up is cut short long before SQL is away, which the
            # probes report. They do not see tables that are missing, while a backup is restored.
            if not database_may_recover(error):
                self.metrics.sql_errors.failed(error, _LOOKING_UP)
            return None
        self.metrics.sql_errors.answered(_LOOKING_UP)
        return found


def copy_key(prefix: str, key: DeviceKey) -> str:
    """The key of the copy of a device's record."""
    return f"{prefix}known:{key.company_id}:{key.udid}"


_COLUMNS = Device.__table__.c
_FIELDS = [_COLUMNS[name] for name in DeviceRecord.__struct_fields__]
_DEVICE = select(_COLUMNS.udid, *_FIELDS).where(_COLUMNS.company_id == bindparam("company"))
# One parameter for all udids: hundreds of them would cost more than the query. No array: asyncpg
# first asks each new connection what that is, which may take longer than the deadline.
_UDIDS = {
    "postgresql": func.json_array_elements_text(cast(bindparam("udids", type_=String), JSON)),
    "sqlite": func.json_each(bindparam("udids")),
}
_QUERIES = {
    dialect: _DEVICE.where(_COLUMNS.udid.in_(select(udids.table_valued("value").c.value)))
    for dialect, udids in _UDIDS.items()
}


async def _select(
    connection: AsyncConnection, dialect: str, keys: Collection[DeviceKey]
) -> DeviceRecords:
    found: dict[DeviceKey, DeviceRecord | None] = dict.fromkeys(keys)
    by_company: dict[int, list[str]] = {}
    for key in keys:
        by_company.setdefault(key.company_id, []).append(key.udid)
    for company_id, udids in by_company.items():
        for part in chunked(udids, _LARGEST_QUERY):
            values = {"company": company_id, "udids": msgspec.json.encode(part).decode()}
            for udid, *record in await connection.execute(_QUERIES[dialect], values):
                found[DeviceKey(company_id, udid)] = DeviceRecord(*record)
    return found
