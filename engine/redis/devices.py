"""Looks up the catalog's records of devices: in memory, in Redis, then in SQL.

A copy, in Redis or in memory, is fresh for 4 s, so that a change in SQL by an authentication, a
detection or an edit is known within 5 s. An older copy, in Redis, is used only while SQL does not
answer. Neither server may stop a notification: it leaves without the fields that cannot be looked
up in time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec
from redis.asyncio import Redis, RedisCluster
from sqlalchemy import ARRAY, String, any_, bindparam, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from catalog.database import Database, chunked
from catalog.models import Device
from engine.kafka.messages import KnownDevice, ReceivedDevice
from engine.process.failures import database_may_recover, redis_may_recover
from engine.process.metrics import Metrics
from rules.decision import NOT_ASKED

FRESH_SECONDS = 4.0
_MOST_REMEMBERED = 20_000  # devices of each of two generations
# Time zones that are only needed to refuse a detection: at a place where a device stays through
# the quiet hours, nobody is asked for each detection.
_ZONE_SECONDS = 60.0
_MOST_ZONES = 100_000


class DeviceKey(NamedTuple):
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


class DeviceCopy(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A record as SQL had it at `read_at` (epoch s); None if SQL had no record."""

    read_at: float
    record: DeviceRecord | None


encode_copy = msgspec.json.Encoder().encode
decode_copy = msgspec.json.Decoder(DeviceCopy).decode


class RecentCopies:
    """The copies that were read in the last seconds.

    A device that is sent several campaigns is read once. The age of a copy counts from the time at
    which SQL was read.
    """

    def __init__(self) -> None:
        self._since = float("-inf")
        self._young: dict[DeviceKey, DeviceCopy] = {}
        self._old: dict[DeviceKey, DeviceCopy] = {}

    def fresh(self, keys: Iterable[DeviceKey], now: float) -> dict[DeviceKey, DeviceRecord | None]:
        """The records of the remembered keys whose copies are fresh."""
        if not 0 <= now - self._since < FRESH_SECONDS or len(self._young) > _MOST_REMEMBERED:
            self._old, self._young, self._since = self._young, {}, now
        found: dict[DeviceKey, DeviceRecord | None] = {}
        for key in keys:
            copy = self._young.get(key) or self._old.get(key)
            if copy is not None and is_fresh(copy, now):
                found[key] = copy.record
        return found

    def remember(self, copies: Mapping[DeviceKey, DeviceCopy]) -> None:
        """Add copies that were just read."""
        self._young.update(copies)


def is_fresh(copy: DeviceCopy, now: float) -> bool:
    """Whether the copy is fresh. A copy from the future is not: a wrong clock wrote it."""
    return 0 <= now - copy.read_at < FRESH_SECONDS


_COPY_SECONDS = 3600  # how long a copy may be used while SQL is down
_DEADLINE = 0.5
_DEADLINE_A_DEVICE = 0.0005  # added for a large batch, so that a busy SQL does not count as down
_PAUSE_SECONDS = 5.0  # after a failure SQL gets no queries for so long
_LARGEST_QUERY = 1000

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


class _Lookup:
    """Keys that are looked up together. `found` has the result."""

    def __init__(self) -> None:
        self.keys: set[DeviceKey] = set()
        self.found: DeviceRecords | None = None


class DeviceLookup:
    """Finds lists of devices. `clock` gives epoch seconds.

    Tasks may share it: calls that begin during a look-up share the next one.
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
        self._clustered = isinstance(redis, RedisCluster)
        self._prefix = prefix
        self._dialect = database.dialect
        # A connection without a session: this is asked in each cycle. No device is soft-deleted.
        self._sql = database.engine
        if database.dialect == "postgresql":
            self._sql = self._sql.execution_options(isolation_level="AUTOCOMMIT")
        self._metrics = metrics
        self._clock = clock
        self._sql_down_until = float("-inf")
        self._recent = RecentCopies()
        self._zones: dict[DeviceKey, str | None] = {}
        self._zones_since = clock()
        self._next = _Lookup()
        self._lock = asyncio.Lock()

    async def find(self, keys: Collection[DeviceKey]) -> DeviceRecords:
        """The records of the keys, and of others; None if the catalog has no such device.

        NO_ANSWER stands for a record that could not be read in time.
        """
        batch = self._next
        batch.keys.update(keys)
        async with self._lock:
            if batch.found is None:  # else another caller has looked up all keys
                self._next = _Lookup()
                batch.found = await self._find(list(batch.keys))
        return batch.found

    async def find_time_zones(self, keys: Collection[DeviceKey]) -> Mapping[DeviceKey, str | None]:
        """The devices' time zones by their records; None if there is none."""
        found, now = await self.find(keys), self._clock()
        if not 0 <= now - self._zones_since < _ZONE_SECONDS or len(self._zones) > _MOST_ZONES:
            self._zones, self._zones_since = {}, now
        zones: dict[DeviceKey, str | None] = {}
        for key in keys:
            record = found[key]
            zones[key] = None if record is None else record.time_zone
            if record is not NO_ANSWER:
                self._zones[key] = zones[key]
        return zones

    def remembered_time_zone(self, key: DeviceKey) -> str | None:
        """The device's time zone as found within the last minute, else NOT_ASKED."""
        if not 0 <= self._clock() - self._zones_since < _ZONE_SECONDS:
            return NOT_ASKED
        return self._zones.get(key, NOT_ASKED)

    async def _find(self, wanted: list[DeviceKey]) -> DeviceRecords:
        found = self._recent.fresh(wanted, self._clock())
        unknown = [key for key in wanted if key not in found] if found else wanted
        if unknown:
            found.update(await self._read(unknown))
        return found

    async def _read(self, wanted: list[DeviceKey]) -> DeviceRecords:
        copies = await self._copies(wanted)
        now = self._clock()
        fresh = {key: copy for key, copy in copies.items() if is_fresh(copy, now)}
        self._recent.remember(fresh)
        found = {key: copy.record for key, copy in fresh.items()}
        missing = [key for key in wanted if key not in found]
        if missing:
            stored = await self._stored(missing)
            if stored is None:
                older = {key: copies[key].record for key in missing if key in copies}
                found.update(dict.fromkeys(missing, NO_ANSWER) | older)
            else:
                found.update(stored)
                self._recent.remember({key: DeviceCopy(now, each) for key, each in stored.items()})
                await self._remember(stored, now)
        return found

    async def _copies(self, keys: list[DeviceKey]) -> dict[DeviceKey, DeviceCopy]:
        names = [self._name(key) for key in keys]
        if self._clustered:
            pipeline: Any = self._redis.pipeline(transaction=False)
            for name in names:
                pipeline.get(name)
            values = await self._run(pipeline.execute())
        else:
            values = await self._run(self._redis.mget(names))
        copies: dict[DeviceKey, DeviceCopy] = {}
        for key, value in zip(keys, values or (), strict=bool(values)):
            if value is not None:
                with suppress(msgspec.DecodeError):  # another program's value
                    copies[key] = decode_copy(value)
        return copies

    async def _remember(self, stored: DeviceRecords, read_at: float) -> None:
        pipeline: Any = self._redis.pipeline(transaction=False)
        for key, record in stored.items():
            if record is not None:  # a device that SQL lacks is usually about to be added
                copy = encode_copy(DeviceCopy(read_at, record))
                pipeline.execute_command("SET", self._name(key), copy, "EX", _COPY_SECONDS)
        if len(pipeline):
            await self._run(pipeline.execute())

    async def _run(self, call: Awaitable[Any]) -> list[Any] | None:
        try:
            async with asyncio.timeout(_DEADLINE):
                answers = list(await call)
        except Exception as error:  # sorted: goes without, or up and stops the process
            if not redis_may_recover(error):
                raise
            self._metrics.redis_errors.inc()
            return None
        return answers

    async def _stored(self, keys: list[DeviceKey]) -> DeviceRecords | None:
        """The records in SQL; None if SQL does not answer."""
        now = self._clock()
        if 0 < self._sql_down_until - now <= _PAUSE_SECONDS:
            return None
        deadline = _DEADLINE + len(keys) * _DEADLINE_A_DEVICE
        try:
            async with asyncio.timeout(deadline), self._sql.connect() as connection:
                found = await _select(connection, self._dialect, keys)
        except Exception as error:  # sorted: goes without, or up and stops the process
            if not database_may_recover(error):
                raise
            self._sql_down_until = now + _PAUSE_SECONDS
            # Not counted: a look-up is cut short long before SQL is away, which the probes report.
            return None
        return found

    def _name(self, key: DeviceKey) -> str:
        return copy_key(self._prefix, key)


def copy_key(prefix: str, key: DeviceKey) -> str:
    """The key of the copy of a device's record."""
    return f"{prefix}known:{key.company_id}:{key.udid}"


_COLUMNS = Device.__table__.c
_FIELDS = [_COLUMNS[name] for name in DeviceRecord.__struct_fields__]
_DEVICE = select(_COLUMNS.udid, *_FIELDS).where(_COLUMNS.company_id == bindparam("company"))
_UDIDS = func.json_each(bindparam("udids")).table_valued("value").c.value
# One parameter for all udids: hundreds of them would cost more than the query.
_QUERIES = {
    "postgresql": _DEVICE.where(_COLUMNS.udid == any_(bindparam("udids", type_=ARRAY(String)))),
    "sqlite": _DEVICE.where(_COLUMNS.udid.in_(select(_UDIDS))),
}


async def _select(
    connection: AsyncConnection, dialect: str, keys: Collection[DeviceKey]
) -> DeviceRecords:
    found: dict[DeviceKey, DeviceRecord | None] = dict.fromkeys(keys)
    by_company: dict[int, list[str]] = {}
    for company_id, udid in keys:
        by_company.setdefault(company_id, []).append(udid)
    for company_id, udids in by_company.items():
        for part in chunked(udids, _LARGEST_QUERY):
            given = part if dialect == "postgresql" else _as_json(part)
            values = {"company": company_id, "udids": given}
            for udid, *record in await connection.execute(_QUERIES[dialect], values):
                found[DeviceKey(company_id, udid)] = DeviceRecord(*record)
    return found


def _as_json(udids: Sequence[str]) -> str:
    return msgspec.json.encode(udids).decode()
