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
from engine.kafka.positions import Place as KafkaPlace
from engine.recorder.ledger import AlreadyCountedError, CompanyGoneError
from engine.recorder.rows import (
    Application,
    AuthenticationRow,
    DetectionRow,
    DeviceKey,
    DeviceNews,
    Figures,
    KnownDevice,
    Place,
    PresenceKey,
    PresenceState,
    ReceptionRow,
    StatisticDevice,
    StatisticKey,
)
from engine.recorder.statements import statements

_SQL = statements("sqlite")
# As SQLAlchemy writes and reads them.
_INSTANT = "%Y-%m-%d %H:%M:%S.%f"

Result = TypeVar("Result")


class SqliteLedger:
    """`engine` is aiosqlite's; one transaction writes at a time, others wait for it."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._reading = engine
        self._writing = with_write_lock(engine)

    @asynccontextmanager
    async def entry(self) -> AsyncIterator["SqliteEntry"]:
        """A transaction: committed at the end, rolled back by an error."""
        async with self._writing.connect() as connection:
            await to_its_end(connection.begin())
            try:
                yield SqliteEntry(connection)
            except BaseException:
                await to_its_end(connection.rollback())
                raise
            await to_its_end(connection.commit())

    async def next_offsets(self, topic: str) -> Mapping[int, int]:
        """The first record that is not recorded, by partition, where any is."""
        return {row[0]: row[1] for row in await self._rows("next_offsets", topic)}

    async def known_places(self, topic: str) -> Mapping[int, KafkaPlace]:
        """The same, each with the id of the topic that it is of."""
        return {row[0]: KafkaPlace(*row[1:]) for row in await self._rows("known_places", topic)}

    async def move_place(
        self, topic: str, partition: int, old: KafkaPlace | None, new: KafkaPlace
    ) -> bool:
        """Put a place in the stead of `old`; False if it is not `old`."""
        async with self.entry() as entry:
            return await entry.move_place(topic, partition, old, new)

    async def companies(self, ids: Collection[int]) -> set[int]:
        """Those that exist."""
        return {row[0] for row in await self._rows("companies", _json(ids))}

    async def time_zones(self, venues: Collection[int]) -> Mapping[int, str | None]:
        """The time zones of venues that exist."""
        return {row[0]: row[1] for row in await self._rows("time_zones", _json(venues))}

    async def applications(self, keys: Collection[str]) -> Mapping[str, Application]:
        """Applications by their api_key."""
        rows = await self._rows("applications", _json(keys))
        return {
            key: Application(number, company, bool(active), expire_on and _instant(expire_on))
            for key, number, company, active, expire_on in rows
        }

    async def _rows(self, name: str, parameter: object) -> list[Any]:
        async with self._reading.connect() as connection:
            return list((await connection.exec_driver_sql(_SQL[name], (parameter,))).all())


class SqliteEntry:
    """An open transaction: it has the database's one write lock."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def advance(self, topic: str, partition: int, old: int | None, new: int) -> bool:
        """Move the offset; False if it is not `old`."""
        if old is None:
            done = await self._run("begin_offset", topic, partition, new)
        else:
            done = await self._run("advance_offset", topic, partition, new, old)
        return bool(done.rowcount == 1)

    async def move_place(
        self, topic: str, partition: int, old: KafkaPlace | None, new: KafkaPlace
    ) -> bool:
        """See Ledger; that the old topic is no more is noted for `verify`."""
        name = "first_place" if old is None else "move_place"
        known = (topic, partition, *new[:2], *(old[:2] if old else ()))
        if (await self._run(name, *known)).rowcount != 1:
            return False
        if old is not None and old.ended_before(new):
            await self._run("note_past", topic)
        return True

    async def now(self) -> datetime:
        """The present on SQL's clock, which is that of this host."""
        ((now,),) = await self._fetch("now")
        return _instant(now)

    async def places(self, keys: Collection[BeaconKey]) -> Mapping[BeaconKey, Place]:
        """Those of the beacons that are active, at an active venue."""
        rows = await self._fetch("places", _json(keys))
        return {BeaconKey(*row[:3]): Place(*row[3:]) for row in rows}

    async def add_devices(
        self, news: Mapping[DeviceKey, DeviceNews], now: datetime
    ) -> Mapping[DeviceKey, KnownDevice]:
        """Create or update devices and add to their counters. Raises CompanyGoneError."""
        rows = [(*key, *astuple(known)) for key, known in sorted(news.items())]
        try:
            found = await self._fetch("add_devices", _json(rows), _text(now))
        except IntegrityError as error:
            raise CompanyGoneError from error
        return {DeviceKey(row[0], row[1]): KnownDevice(row[2], bool(row[3])) for row in found}

    async def add_detections(self, rows: Sequence[DetectionRow]) -> None:
        """Append to the trace."""
        await self._run_many("add_detections", [(*r[:4], _text(r.create_on), r.ip) for r in rows])

    async def add_authentications(self, rows: Sequence[AuthenticationRow]) -> None:
        """Append to the trace."""
        values = [(*r[:2], _text(r.create_on), r.ip) for r in rows]
        await self._run_many("add_authentications", values)

    async def counted(self, notifications: Collection[UUID]) -> set[UUID]:
        """Those that were counted before."""
        rows = await self._fetch("counted", _json([each.hex for each in notifications]))
        return {UUID(row[0]) for row in rows}

    async def add_receptions(self, rows: Sequence[ReceptionRow]) -> None:
        """Note notifications as counted. Raises AlreadyCountedError."""
        values = [(r.notification.hex, *r[1:3], _text(r.create_on)) for r in rows]
        try:
            await self._run_many("add_receptions", values)
        except IntegrityError as error:
            raise AlreadyCountedError from error

    async def presences(self, keys: Collection[PresenceKey]) -> dict[PresenceKey, PresenceState]:
        """The last trace rows of devices at beacons."""
        rows = await self._fetch("presences", _json(keys))
        return {PresenceKey(*row[:2]): PresenceState(row[2], _instant(row[3])) for row in rows}

    async def set_presences(self, states: Mapping[PresenceKey, PresenceState]) -> None:
        """Replace them."""
        rows = [(*key, state.status, _text(state.create_on)) for key, state in states.items()]
        await self._run_many("set_presences", rows)

    async def add_statistics(
        self, figures: Mapping[StatisticKey, Figures], devices: Collection[StatisticDevice]
    ) -> None:
        """Add to the figures of days."""
        new = await self._fetch("add_statistic_devices", _json(devices))
        fresh = Counter(StatisticKey(date.fromisoformat(row[0]), *row[1:]) for row in new)
        rows = [
            (str(key.day), *key[1:], add.venue_id, add.detections, fresh[key], add.notifications)
            for key, add in figures.items()
        ]
        await self._run_many("add_statistics", rows)

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
        # The loop would complain of an error that nobody has asked for.
        raise cancelled from None if task.cancelled() else task.exception()
    return task.result()


def _json(rows: Collection[Any]) -> str:
    return orjson.dumps([tuple(r) if isinstance(r, tuple) else r for r in rows]).decode()


def _text(instant: datetime) -> str:
    return instant.astimezone(UTC).strftime(_INSTANT)


def _instant(text: str) -> datetime:
    return datetime.strptime(text, _INSTANT).replace(tzinfo=UTC)
