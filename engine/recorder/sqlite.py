"""The ledger on SQLite: rows go in as one JSON list, or many at a time."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime
from typing import Any, TypeVar
from uuid import UUID

import orjson
from msgspec.structs import astuple
from sqlalchemy import CursorResult
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from catalog.database import with_write_lock
from engine.kafka.detections import BeaconKey
from engine.kafka.positions import Position
from engine.recorder.errors import AlreadyCountedError, CompanyDeletedError
from engine.recorder.ledger import OffsetStatements, statements
from engine.recorder.rows import (
    ActiveBeacon,
    AuthenticationRow,
    DetectionRow,
    DeviceChanges,
    DeviceIdentity,
    FigureIncrements,
    PresenceKey,
    PresenceState,
    ReceptionRow,
    RegisteredApplication,
    StatisticDeviceRow,
    StatisticKey,
    StoredDevice,
)

_SQL = statements("sqlite")
# As SQLAlchemy writes and reads them.
_INSTANT = "%Y-%m-%d %H:%M:%S.%f"

Result = TypeVar("Result")


class SqliteLedger:
    """Implements Ledger. One transaction writes at a time, others wait for it. `engine` is
    aiosqlite's."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._reading = engine
        self._writing = with_write_lock(engine)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator["SqliteTransaction"]:
        async with self._writing.connect() as connection:
            await to_its_end(connection.begin())
            try:
                yield SqliteTransaction(connection)
            except BaseException:
                await to_its_end(connection.rollback())
                raise
            await to_its_end(connection.commit())

    async def positions(self, topic: str) -> Mapping[int, Position]:
        return {row[0]: Position(*row[1:]) for row in await self._rows("positions", topic)}

    async def existing_companies(self, ids: Collection[int]) -> set[int]:
        return {row[0] for row in await self._rows("existing_companies", _json(ids))}

    async def venue_time_zones(self, venues: Collection[int]) -> Mapping[int, str | None]:
        return {row[0]: row[1] for row in await self._rows("venue_time_zones", _json(venues))}

    async def applications(self, keys: Collection[str]) -> Mapping[str, RegisteredApplication]:
        rows = await self._rows("applications", _json(keys))
        return {
            key: RegisteredApplication(
                id_, company, bool(active), expire_on and _instant(expire_on)
            )
            for key, id_, company, active, expire_on in rows
        }

    async def _rows(self, name: str, parameter: object) -> list[Any]:
        async with self._reading.connect() as connection:
            return list((await connection.exec_driver_sql(_SQL[name], (parameter,))).all())


class SqliteTransaction(OffsetStatements):
    """Implements LedgerTransaction. It has the database's one write lock."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def now(self) -> datetime:
        ((now,),) = await self._fetch("now")
        return _instant(now)

    async def active_beacons(self, keys: Collection[BeaconKey]) -> Mapping[BeaconKey, ActiveBeacon]:
        rows = await self._fetch("active_beacons", _json(keys))
        return {BeaconKey(*row[:3]): ActiveBeacon(*row[3:]) for row in rows}

    async def add_devices(
        self, updates: Mapping[DeviceIdentity, DeviceChanges], now: datetime
    ) -> Mapping[DeviceIdentity, StoredDevice]:
        rows = [(*key, *astuple(update)) for key, update in sorted(updates.items())]
        try:
            found = await self._fetch("add_devices", _json(rows), _text(now))
        except IntegrityError as error:
            raise CompanyDeletedError from error
        return {DeviceIdentity(row[0], row[1]): StoredDevice(row[2], bool(row[3])) for row in found}

    async def add_detections(self, rows: Sequence[DetectionRow]) -> None:
        await self._run_many("add_detections", [(*r[:4], _text(r.create_on), r.ip) for r in rows])

    async def add_authentications(self, rows: Sequence[AuthenticationRow]) -> None:
        values = [(*r[:2], _text(r.create_on), r.ip) for r in rows]
        await self._run_many("add_authentications", values)

    async def counted_notifications(self, ids: Collection[UUID]) -> set[UUID]:
        rows = await self._fetch("counted_notifications", _json([each.hex for each in ids]))
        return {UUID(row[0]) for row in rows}

    async def add_receptions(self, rows: Sequence[ReceptionRow]) -> None:
        values = [(r.notification.hex, *r[1:3], _text(r.create_on)) for r in rows]
        try:
            await self._run_many("add_receptions", values)
        except IntegrityError as error:
            raise AlreadyCountedError from error

    async def presences(self, keys: Collection[PresenceKey]) -> dict[PresenceKey, PresenceState]:
        rows = await self._fetch("presences", _json(keys))
        return {PresenceKey(*row[:2]): PresenceState(row[2], _instant(row[3])) for row in rows}

    async def set_presences(self, states: Mapping[PresenceKey, PresenceState]) -> None:
        rows = [(*key, state.status, _text(state.create_on)) for key, state in states.items()]
        await self._run_many("set_presences", rows)

    async def add_statistics(
        self,
        figures: Mapping[StatisticKey, FigureIncrements],
        devices: Collection[StatisticDeviceRow],
    ) -> None:
        added = await self._fetch("add_statistic_devices", _json(devices))
        new_devices = Counter(StatisticKey(date.fromisoformat(row[0]), *row[1:]) for row in added)
        rows = [
            (str(k.day), *k[1:], add.venue_id, add.detections, new_devices[k], add.notifications)
            for k, add in figures.items()
        ]
        await self._run_many("add_statistics", rows)

    async def _has_changed_one(self, name: str, *parameters: object) -> bool:
        return bool((await self._run(name, *parameters)).rowcount == 1)

    async def _run(self, name: str, *parameters: object) -> CursorResult[Any]:
        return await to_its_end(self._connection.exec_driver_sql(_SQL[name], parameters))

    async def _fetch(self, name: str, *parameters: object) -> list[Any]:
        return list((await self._run(name, *parameters)).all())

    async def _run_many(self, name: str, rows: list[tuple[Any, ...]]) -> None:
        if rows:
            await to_its_end(self._connection.exec_driver_sql(_SQL[name], rows))


async def to_its_end(statement: Awaitable[Result]) -> Result:
    """The result of a statement, which is waited for even when the caller is cancelled.

    SQLite runs it in a thread that nothing stops: left alone, it would keep the write lock.
    """
    task = asyncio.ensure_future(statement)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        # An error that is never retrieved would be reported by the event loop.
        raise cancelled from None if task.cancelled() else task.exception()
    return task.result()


def _json(rows: Collection[Any]) -> str:
    return orjson.dumps([tuple(r) if isinstance(r, tuple) else r for r in rows]).decode()


def _text(instant: datetime) -> str:
    return instant.astimezone(UTC).strftime(_INSTANT)


def _instant(text: str) -> datetime:
    return datetime.strptime(text, _INSTANT).replace(tzinfo=UTC)
