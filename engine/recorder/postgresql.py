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
from engine.recorder.errors import (
    AlreadyCountedError,
    CompanyDeletedError,
    DayPartitionCreatedError,
)
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

_SQL = statements("postgresql")


class PostgresLedger:
    """Implements Ledger. `engine` is asyncpg's; its pool and its deadlines hold here too."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator["PostgresTransaction"]:
        async with self._connection() as connection:
            transaction = connection.transaction()
            await transaction.start()
            try:
                yield PostgresTransaction(connection)
            except BaseException:
                # A COPY that was broken off takes no statement any more: then the connection ends,
                # and the server rolls back.
                with suppress(Exception):
                    await transaction.rollback()
                raise
            await transaction.commit()

    async def positions(self, topic: str) -> Mapping[int, Position]:
        rows = await self._fetch("positions", topic)
        return {row["partition"]: Position(row["next_offset"], row["topic_id"]) for row in rows}

    async def existing_companies(self, ids: Collection[int]) -> set[int]:
        return {row["id"] for row in await self._fetch("existing_companies", list(ids))}

    async def venue_time_zones(self, venues: Collection[int]) -> Mapping[int, str | None]:
        rows = await self._fetch("venue_time_zones", list(venues))
        return {row["id"]: row["time_zone"] for row in rows}

    async def applications(self, keys: Collection[str]) -> Mapping[str, RegisteredApplication]:
        rows = await self._fetch("applications", list(keys))
        return {row["api_key"]: RegisteredApplication(*tuple(row)[1:]) for row in rows}

    async def _fetch(self, name: str, parameter: object) -> list[Any]:
        async with self._connection() as connection:
            return list(await connection.fetch(_SQL[name], parameter))

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        async with self._engine.connect() as pooled:
            # SQLAlchemy begins a transaction with its first statement, and is given none.
            connection = (await pooled.get_raw_connection()).driver_connection
            assert connection is not None  # noqa: S101  # only a detached one is
            try:
                yield connection
            except BaseException as error:
                # A rollback that is cancelled may be half done, which the pool does not know. The
                # next user of the connection would be in a transaction that never ends.
                is_broken_off = isinstance(error, InternalClientError) or not isinstance(
                    error, Exception
                )
                if is_broken_off or connection.is_in_transaction():
                    connection.terminate()
                raise


class PostgresTransaction(OffsetStatements):
    """Implements LedgerTransaction. What locks rows has them sorted by their keys."""

    def __init__(self, connection: "Connection[Any]") -> None:
        self._connection = connection

    async def now(self) -> datetime:
        now: datetime = await self._connection.fetchval(_SQL["now"])
        return now

    async def active_beacons(self, keys: Collection[BeaconKey]) -> Mapping[BeaconKey, ActiveBeacon]:
        rows = await self._fetch("active_beacons", *_columns(keys, 3))
        return {BeaconKey(*tuple(row)[:3]): ActiveBeacon(*tuple(row)[3:]) for row in rows}

    async def add_devices(
        self, updates: Mapping[DeviceIdentity, DeviceChanges], now: datetime
    ) -> Mapping[DeviceIdentity, StoredDevice]:
        rows = [(*key, *astuple(update)) for key, update in sorted(updates.items())]
        try:
            found = await self._fetch("add_devices", *_columns(rows, 9), now)
        except ForeignKeyViolationError as error:
            raise CompanyDeletedError from error
        return {DeviceIdentity(row[0], row[1]): StoredDevice(row[2], row[3]) for row in found}

    async def add_detections(self, rows: Sequence[DetectionRow]) -> None:
        await self._copy("detection_trace", DetectionRow._fields, rows)

    async def add_authentications(self, rows: Sequence[AuthenticationRow]) -> None:
        await self._copy("authentication_trace", AuthenticationRow._fields, rows)

    async def counted_notifications(self, ids: Collection[UUID]) -> set[UUID]:
        rows = await self._fetch("counted_notifications", list(ids))
        return {row["notification"] for row in rows}

    async def add_receptions(self, rows: Sequence[ReceptionRow]) -> None:
        try:
            await self._copy("reception", ReceptionRow._fields, sorted(rows))
        except UniqueViolationError as error:
            raise AlreadyCountedError from error

    async def presences(self, keys: Collection[PresenceKey]) -> dict[PresenceKey, PresenceState]:
        rows = await self._fetch("presences", *_columns(keys, 2))
        return {PresenceKey(row[0], row[1]): PresenceState(row[2], row[3]) for row in rows}

    async def set_presences(self, states: Mapping[PresenceKey, PresenceState]) -> None:
        rows = [(*key, *state) for key, state in sorted(states.items())]
        await self._connection.execute(_SQL["set_presences"], *_columns(rows, 4))

    async def add_statistics(
        self,
        figures: Mapping[StatisticKey, FigureIncrements],
        devices: Collection[StatisticDeviceRow],
    ) -> None:
        added = await self._fetch("add_statistic_devices", *_columns(sorted(devices), 4))
        new_devices = {StatisticKey(*tuple(row)[:3]): row[3] for row in added}
        rows = [
            (*key, add.venue_id, add.detections, new_devices.get(key, 0), add.notifications)
            for key, add in sorted(figures.items(), key=lambda item: item[0])
        ]
        await self._connection.execute(_SQL["add_statistics"], *_columns(rows, 7))

    async def _fetch(self, name: str, *parameters: object) -> list[Any]:
        return list(await self._connection.fetch(_SQL[name], *parameters))

    async def _has_changed_one(self, name: str, *parameters: object) -> bool:
        status: str = await self._connection.execute(_SQL[name], *parameters)
        return status.endswith(" 1")

    async def _copy(self, table: str, columns: Sequence[str], rows: Sequence[Any]) -> None:
        if not rows:
            return
        try:
            await self._connection.copy_records_to_table(
                table, records=rows, columns=columns, timeout=None
            )
        except CheckViolationError as error:
            # The default partition took these rows when COPY began, and does not take them now.
            raise DayPartitionCreatedError from error


def _columns(rows: Collection[Sequence[Any]], width: int) -> list[list[Any]]:
    """Rows as columns: PostgreSQL takes each as one array."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[]] * width
