"""The ledger on PostgreSQL, through asyncpg: whole columns in, COPY for the traces."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Any
from uuid import UUID

from asyncpg import (
    CheckViolationError,
    Connection,
    ForeignKeyViolationError,
    InternalClientError,
    UniqueViolationError,
)
from msgspec.structs import astuple
from sqlalchemy.ext.asyncio import AsyncEngine

from engine.kafka.detections import BeaconKey
from engine.kafka.positions import Position
from engine.recorder.ledger import AlreadyCountedError, CompanyGoneError, DayMadeError
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

_SQL = statements("postgresql")


class PostgresLedger:
    """`engine` is asyncpg's; its pool and its deadlines hold here too."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    @asynccontextmanager
    async def entry(self) -> AsyncIterator["PostgresEntry"]:
        """A transaction: committed at the end, rolled back by an error."""
        async with self._connection() as connection:
            transaction = connection.transaction()
            await transaction.start()
            try:
                yield PostgresEntry(connection)
            except BaseException:
                # What was broken off in the middle of a COPY takes no statement any more; then the
                # connection ends, and the server rolls back.
                with suppress(Exception):
                    await transaction.rollback()
                raise
            await transaction.commit()

    async def next_offsets(self, topic: str) -> Mapping[int, int]:
        """The first record that is not recorded, by partition, where any is."""
        async with self._connection() as connection:
            rows = await connection.fetch(_SQL["next_offsets"], topic)
        return {row["partition"]: row["next_offset"] for row in rows}

    async def known_places(self, topic: str) -> Mapping[int, Position]:
        """The same, each with the id of the topic that it is of."""
        async with self._connection() as connection:
            rows = await connection.fetch(_SQL["known_places"], topic)
        return {row["partition"]: Position(row["next_offset"], row["topic_id"]) for row in rows}

    async def move_place(
        self, topic: str, partition: int, old: Position | None, new: Position
    ) -> bool:
        """Put a place in the stead of `old`; False if it is not `old`."""
        async with self.entry() as entry:
            return await entry.move_place(topic, partition, old, new)

    async def companies(self, ids: Collection[int]) -> set[int]:
        """Those that exist."""
        async with self._connection() as connection:
            return {row["id"] for row in await connection.fetch(_SQL["companies"], list(ids))}

    async def time_zones(self, venues: Collection[int]) -> Mapping[int, str | None]:
        """The time zones of venues that exist."""
        async with self._connection() as connection:
            rows = await connection.fetch(_SQL["time_zones"], list(venues))
        return {row["id"]: row["time_zone"] for row in rows}

    async def applications(self, keys: Collection[str]) -> Mapping[str, Application]:
        """Applications by their api_key."""
        async with self._connection() as connection:
            rows = await connection.fetch(_SQL["applications"], list(keys))
        return {row["api_key"]: Application(*tuple(row)[1:]) for row in rows}

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        async with self._engine.connect() as pooled:
            # SQLAlchemy begins a transaction with its first statement, and is given none.
            connection = (await pooled.get_raw_connection()).driver_connection
            assert connection is not None  # noqa: S101  # only a detached one is
            try:
                yield connection
            except BaseException as error:
                # A rollback that is cancelled may be half done, and the pool knows nothing of it:
                # whoever is given the connection next would be in a transaction that never ends.
                if _breaks_off(error) or connection.is_in_transaction():
                    connection.terminate()
                raise


class PostgresEntry:
    """An open transaction. What it locks it locks in the order of the keys."""

    def __init__(self, connection: "Connection[Any]") -> None:
        self._connection = connection

    async def advance(self, topic: str, partition: int, old: int | None, new: int) -> bool:
        """Move the offset; False if it is not `old`."""
        name = "begin_offset" if old is None else "advance_offset"
        known = (topic, partition, new) if old is None else (topic, partition, new, old)
        done = await self._connection.execute(_SQL[name], *known)
        return bool(done.endswith(" 1"))

    async def move_place(
        self, topic: str, partition: int, old: Position | None, new: Position
    ) -> bool:
        """See Ledger; that the old topic is no more is noted for `verify`."""
        name = "first_place" if old is None else "move_place"
        known = (topic, partition, *new[:2], *(old[:2] if old else ()))
        done = await self._connection.execute(_SQL[name], *known)
        if not done.endswith(" 1"):
            return False
        if old is not None and old.topic_ended_before(new):
            await self._connection.execute(_SQL["note_past"], topic)
        return True

    async def now(self) -> datetime:
        """The present on SQL's clock: that of the transaction's beginning."""
        now: datetime = await self._connection.fetchval(_SQL["now"])
        return now

    async def places(self, keys: Collection[BeaconKey]) -> Mapping[BeaconKey, Place]:
        """Those of the beacons that are active, at an active venue."""
        rows = await self._connection.fetch(_SQL["places"], *_columns(keys, 3))
        return {BeaconKey(*tuple(row)[:3]): Place(*tuple(row)[3:]) for row in rows}

    async def add_devices(
        self, news: Mapping[DeviceKey, DeviceNews], now: datetime
    ) -> Mapping[DeviceKey, KnownDevice]:
        """Create or update devices and add to their counters. Raises CompanyGoneError."""
        rows = [(*key, *astuple(known)) for key, known in sorted(news.items())]
        try:
            found = await self._connection.fetch(_SQL["add_devices"], *_columns(rows, 9), now)
        except ForeignKeyViolationError as error:
            raise CompanyGoneError from error
        return {DeviceKey(row[0], row[1]): KnownDevice(row[2], row[3]) for row in found}

    async def add_detections(self, rows: Sequence[DetectionRow]) -> None:
        """Append to the trace."""
        await self._copy("detection_trace", DetectionRow._fields, rows)

    async def add_authentications(self, rows: Sequence[AuthenticationRow]) -> None:
        """Append to the trace."""
        await self._copy("authentication_trace", AuthenticationRow._fields, rows)

    async def counted(self, notifications: Collection[UUID]) -> set[UUID]:
        """Those that were counted before."""
        rows = await self._connection.fetch(_SQL["counted"], list(notifications))
        return {row["notification"] for row in rows}

    async def add_receptions(self, rows: Sequence[ReceptionRow]) -> None:
        """Note notifications as counted. Raises AlreadyCountedError."""
        try:
            await self._copy("reception", ReceptionRow._fields, sorted(rows))
        except UniqueViolationError as error:
            raise AlreadyCountedError from error

    async def presences(self, keys: Collection[PresenceKey]) -> dict[PresenceKey, PresenceState]:
        """The last trace rows of devices at beacons."""
        rows = await self._connection.fetch(_SQL["presences"], *_columns(keys, 2))
        return {PresenceKey(row[0], row[1]): PresenceState(row[2], row[3]) for row in rows}

    async def set_presences(self, states: Mapping[PresenceKey, PresenceState]) -> None:
        """Replace them."""
        rows = [(*key, *state) for key, state in sorted(states.items())]
        await self._connection.execute(_SQL["set_presences"], *_columns(rows, 4))

    async def add_statistics(
        self, figures: Mapping[StatisticKey, Figures], devices: Collection[StatisticDevice]
    ) -> None:
        """Add to the figures of days."""
        new = await self._connection.fetch(
            _SQL["add_statistic_devices"], *_columns(sorted(devices), 4)
        )
        fresh = {StatisticKey(*tuple(row)[:3]): row[3] for row in new}
        rows = [
            (*key, add.venue_id, add.detections, fresh.get(key, 0), add.notifications)
            for key, add in sorted(figures.items(), key=lambda item: item[0])
        ]
        await self._connection.execute(_SQL["add_statistics"], *_columns(rows, 7))

    async def _copy(self, table: str, columns: Sequence[str], rows: Sequence[Any]) -> None:
        if not rows:
            return
        try:
            await self._connection.copy_records_to_table(
                table, records=rows, columns=columns, timeout=None
            )
        except CheckViolationError as error:
            # The default partition does not take them any more, though it did when COPY began.
            raise DayMadeError from error


def _breaks_off(error: BaseException) -> bool:
    """Whether the connection may be in the middle of something."""
    return isinstance(error, InternalClientError) or not isinstance(error, Exception)


def _columns(rows: Collection[Sequence[Any]], width: int) -> list[list[Any]]:
    """Rows as columns: PostgreSQL takes each as one array."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[]] * width
