"""What the catalog knows of devices, for notifications and calls: Redis in front of SQL.

A copy in Redis is fresh for 4 s, so that what an authentication, a detection or an edit has told
SQL is known within 5 s. An older copy serves only while SQL does not answer. Neither server may
stop a notification: it leaves without what cannot be found out in time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec
from redis.asyncio import Redis, RedisCluster
from sqlalchemy import ARRAY, String, bindparam, text
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.chunks import chunked
from catalog.database import Database
from engine.kafka.messages import Device as ReceivedDevice
from engine.kafka.messages import KnownDevice
from engine.process.failures import database_may_recover, redis_may_recover
from engine.process.metrics import Metrics

_FRESH_SECONDS = 4.0
_COPY_SECONDS = 3600  # how long an old copy may stand in for SQL
_DEADLINE = 0.5
_DEADLINE_A_DEVICE = 0.0005  # more for a large batch, so that a busy SQL is not taken for away
_PAUSE_SECONDS = 5.0  # SQL that failed is left alone for so long
_LARGEST_QUERY = 1000


class DeviceKey(NamedTuple):
    """A device is one company's."""

    company_id: int
    udid: str


class DeviceRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A device's record, as far as notifications and calls need it."""

    id: int | None
    id_connector: int | None
    test: bool
    token_push: str | None = None
    name: str | None = None
    version: str | None = None
    model: str | None = None


NO_ANSWER = DeviceRecord(None, None, False)


class _Copy(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A record as SQL had it at `read_at` (epoch s); None: SQL had none."""

    read_at: float
    record: DeviceRecord | None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Copy).decode

DeviceRecords = Mapping[DeviceKey, DeviceRecord | None]


def completed_device(device: ReceivedDevice, known: DeviceRecord | None) -> KnownDevice:
    """The device as received; what the message leaves out is filled in from the record."""
    if known is None:
        known = NO_ANSWER
    return KnownDevice(
        udid=device.udid,
        name=known.name if device.name is None else device.name,
        version=known.version if device.version is None else device.version,
        model=known.model if device.model is None else device.model,
        token_push=known.token_push if device.token_push is None else device.token_push,
        id_connector=known.id_connector if device.id_connector is None else device.id_connector,
        id=known.id,
    )


class _Lookup:
    """Keys that are looked up together; `found` once they have been."""

    def __init__(self) -> None:
        self.keys: set[DeviceKey] = set()
        self.found: DeviceRecords | None = None


class DeviceLookup:
    """Finds devices, a list at a time. `clock` gives epoch seconds.

    Safe to share between tasks: callers who ask while a look-up is under way share the next one.
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
        self._database = database
        self._metrics = metrics
        self._clock = clock
        self._sql_away_until = float("-inf")
        self._next = _Lookup()
        self._asking = asyncio.Lock()

    async def find(self, keys: Collection[DeviceKey]) -> DeviceRecords:
        """Each key's record, among others'; None: the catalog has none; NO_ANSWER: it did not
        answer in time."""
        batch = self._next
        batch.keys.update(keys)
        async with self._asking:
            if batch.found is None:  # else another caller has asked for all
                self._next = _Lookup()
                batch.found = await self._find(list(batch.keys))
        return batch.found

    async def _find(self, wanted: list[DeviceKey]) -> DeviceRecords:
        copies = await self._copies(wanted)
        now = self._clock()
        # A copy from the future was written by a clock that is ahead: its age is not known.
        found = {
            key: copy.record
            for key, copy in copies.items()
            if 0 <= now - copy.read_at < _FRESH_SECONDS
        }
        missing = [key for key in wanted if key not in found]
        if missing:
            stored = await self._stored(missing)
            if stored is None:
                older = {key: copies[key].record for key in missing if key in copies}
                found.update(dict.fromkeys(missing, NO_ANSWER) | older)
            else:
                found.update(stored)
                await self._remember(stored, now)
        return found

    async def _copies(self, keys: list[DeviceKey]) -> dict[DeviceKey, _Copy]:
        names = [self._name(key) for key in keys]
        if self._clustered:
            pipeline: Any = self._redis.pipeline(transaction=False)
            for name in names:
                pipeline.get(name)
            values = await self._run(pipeline.execute())
        else:
            values = await self._run(self._redis.mget(names))
        copies: dict[DeviceKey, _Copy] = {}
        for key, value in zip(keys, values or (), strict=bool(values)):
            if value is not None:
                with suppress(msgspec.DecodeError):  # not ours: SQL is asked instead
                    copies[key] = _decode(value)
        return copies

    async def _remember(self, stored: DeviceRecords, read_at: float) -> None:
        pipeline: Any = self._redis.pipeline(transaction=False)
        for key, record in stored.items():
            if record is not None:  # a device that SQL does not have is about to come there
                copy = _encode(_Copy(read_at, record))
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
        """What SQL has; None when it does not answer."""
        now = self._clock()
        if 0 < self._sql_away_until - now <= _PAUSE_SECONDS:
            return None
        deadline = _DEADLINE + len(keys) * _DEADLINE_A_DEVICE
        try:
            async with asyncio.timeout(deadline), self._database.autocommit() as session:
                found = await _select(session, self._database.dialect, keys)
        except Exception as error:  # sorted: goes without, or up and stops the process
            if not database_may_recover(error):
                raise
            self._sql_away_until = now + _PAUSE_SECONDS
            # Counted only. The line in the log is left to the probes, which ask all the time: a
            # look-up is rare, and would say late that SQL is back.
            self._metrics.sql_errors.inc()
            return None
        return found

    def _name(self, key: DeviceKey) -> str:
        return copy_key(self._prefix, key)


def copy_key(prefix: str, key: DeviceKey) -> str:
    """Where the copy of a device's record lies."""
    return f"{prefix}known:{key.company_id}:{key.udid}"


# One parameter for all udids: hundreds of them would cost more than the query.
_QUERY = (
    "SELECT udid, id, id_connector, test, token_push, name, version, model "
    "FROM device WHERE company_id = :company AND udid "
)
_QUERIES = {
    "postgresql": text(_QUERY + "= ANY (:udids)").bindparams(
        bindparam("udids", type_=ARRAY(String))
    ),
    "sqlite": text(_QUERY + "IN (SELECT value FROM json_each(:udids))"),  # noqa: S608
}


async def _select(session: AsyncSession, dialect: str, keys: list[DeviceKey]) -> DeviceRecords:
    found: dict[DeviceKey, DeviceRecord | None] = dict.fromkeys(keys)
    by_company: dict[int, list[str]] = {}
    for company_id, udid in keys:
        by_company.setdefault(company_id, []).append(udid)
    connection = await session.connection()
    for company_id, udids in by_company.items():
        for part in chunked(udids, _LARGEST_QUERY):
            given: Any = part if dialect == "postgresql" else _as_json(part)
            rows: Iterable[Any] = await connection.execute(
                _QUERIES[dialect], {"company": company_id, "udids": given}
            )
            for udid, id_, id_connector, test, *others in rows:
                known = DeviceRecord(id_, id_connector, bool(test), *others)
                found[DeviceKey(company_id, udid)] = known
    return found


def _as_json(udids: Sequence[str]) -> str:
    return msgspec.json.encode(udids).decode()
