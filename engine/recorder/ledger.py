"""The port to SQL: one transaction that writes a batch and moves the partition's offset.

Both ledgers (postgresql.py, sqlite.py) behave alike, and one test suite checks both. They run the
same statements, each in its own dialect and with its own way of passing rows. Their methods raise
the driver's errors; engine.process.failures says which of them are temporary.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import date, datetime
from functools import cache
from importlib.resources import files
from itertools import repeat
from types import MappingProxyType
from typing import Any
from uuid import UUID

from msgspec.structs import astuple

from engine.kafka.detections import BeaconKey
from engine.kafka.positions import Position
from engine.recorder.errors import AlreadyCountedError, CompanyDeletedError, NewDeviceCountedError
from engine.recorder.rows import (
    ActiveBeacon,
    AuthenticationRow,
    DetectionRow,
    DeviceChanges,
    DeviceColumns,
    DeviceIdentity,
    FigureIncrements,
    PresenceKey,
    PresenceState,
    ReceptionRow,
    RegisteredApplication,
    StatisticKey,
    StoredDevice,
    ToldDevice,
)

_STATEMENT_MARK = "-- name: "


class LedgerTransaction(ABC):
    """An open transaction. It locks rows in the order of their keys.

    `tells_new`: whether ToldDevice.new is told; else it is False.
    """

    tells_new = False
    foreign_key_error: type[Exception]
    duplicate_error: type[Exception]

    async def advance_offset(self, topic: str, partition: int, old: int | None, new: int) -> bool:
        """Move the offset from `old` (None: there is none yet) to `new`; False if it is not `old`.

        Later writers of the partition wait for this transaction.
        """
        if old is None:
            return await self._has_changed_one("begin_offset", topic, partition, new)
        return await self._has_changed_one("advance_offset", topic, partition, new, old)

    async def move_position(
        self, topic: str, partition: int, old: Position | None, new: Position
    ) -> bool:
        """Replace the position `old` (None: there is none); False if it is not `old`.

        If `new` is of another topic, `verify` is told that the topic of `old` was deleted.
        """
        if old is None:
            return await self._has_changed_one("first_position", topic, partition, *new[:2])
        if not await self._has_changed_one("move_position", topic, partition, *new[:2], *old[:2]):
            return False
        if old.topic_ended_before(new):
            await self._has_changed_one("note_past", topic)
        return True

    async def now(self) -> datetime:
        """The time on SQL's clock; the same for all rows of the transaction."""
        ((now,),) = await self._fetch("now")
        return self._instant(now)

    async def active_beacons(self, keys: Collection[BeaconKey]) -> Mapping[BeaconKey, ActiveBeacon]:
        """The active beacons at active venues among `keys`."""
        found = await self._fetch("active_beacons", *self._table(keys, 3))
        return {
            BeaconKey(uuid, major, minor): ActiveBeacon(*beacon)
            for uuid, major, minor, *beacon in found
        }

    async def add_devices(
        self, updates: Mapping[DeviceIdentity, DeviceChanges], now: datetime
    ) -> Mapping[DeviceIdentity, StoredDevice]:
        """Create or update devices and increase their counters.

        Fields that are None stay unchanged. Raises CompanyDeletedError.
        """
        if not updates:
            return {}
        rows = [(*key, *astuple(update)) for key, update in sorted(updates.items())]
        found = await self.add_device_columns(DeviceColumns(*zip(*rows, strict=True)), now)
        return {
            DeviceIdentity(company_id, udid): StoredDevice(number, bool(test))
            for company_id, udid, number, test, _ in found
        }

    async def add_device_columns(
        self, columns: DeviceColumns, now: datetime
    ) -> Sequence[ToldDevice]:
        """Like add_devices; returns the devices as SQL tells them, in any order."""
        parameters = (*self._columns(columns), self._written(now), self.tells_new)
        try:
            found: list[ToldDevice] = await self._fetch("add_devices", *parameters)
        except self.foreign_key_error as error:
            raise CompanyDeletedError from error
        return found

    async def add_detections(self, rows: Sequence[DetectionRow]) -> None:
        """Append rows to the trace. Raises DayPartitionCreatedError."""
        await self._append("add_detections", rows)

    async def add_authentications(self, rows: Sequence[AuthenticationRow]) -> None:
        """Append rows to the trace. Raises DayPartitionCreatedError."""
        await self._append("add_authentications", rows)

    async def counted_notifications(self, ids: Collection[UUID]) -> set[UUID]:
        """The notifications that were counted before."""
        found = await self._fetch("counted_notifications", self._list(ids))
        return {self._uuid(number) for (number,) in found}

    async def add_receptions(self, rows: Sequence[ReceptionRow]) -> None:
        """Store notifications as counted. Raises AlreadyCountedError."""
        try:
            await self._append("add_receptions", sorted(rows))
        except self.duplicate_error as error:
            raise AlreadyCountedError from error

    async def presences(self, keys: Collection[PresenceKey]) -> dict[PresenceKey, PresenceState]:
        """The last trace rows of devices at beacons."""
        return {
            PresenceKey(device, beacon): PresenceState(status, self._instant(at))
            for device, beacon, status, at in await self._fetch("presences", *self._table(keys, 2))
        }

    async def set_presences(self, states: Mapping[PresenceKey, PresenceState]) -> None:
        """Replace the last trace rows of devices at beacons."""
        rows = [(*key, *state) for key, state in sorted(states.items())]
        await self._write("set_presences", rows, 4)

    async def add_statistics(
        self,
        figures: Mapping[StatisticKey, FigureIncrements],
        devices: Mapping[StatisticKey, Collection[int]],
        new_devices: Mapping[StatisticKey, Collection[int]] = MappingProxyType({}),
    ) -> None:
        """Add to daily figures. A device (by its id) that is new in them is counted there.

        `new_devices` are others, which this transaction has created. Raises NewDeviceCountedError.
        """
        columns = _columns_of(devices)
        counts = Counter({key: len(members) for key, members in new_devices.items()})
        if columns[0]:
            added = await self._fetch("add_statistic_devices", *self._columns(columns))
            for day, kind, ref, count in added:
                counts[StatisticKey(self._day(day), kind, ref)] += count
        new_rows = list(zip(*_columns_of(new_devices), strict=True))
        try:
            await self._append("append_statistic_devices", new_rows)
        except self.duplicate_error as error:
            raise NewDeviceCountedError from error
        rows = [
            (*key, add.venue_id, add.detections, counts[key], add.notifications)
            for key, add in sorted(figures.items(), key=lambda item: item[0])
        ]
        await self._write("add_statistics", rows, 7)

    @abstractmethod
    async def _fetch(self, name: str, *parameters: object) -> list[Any]:
        """Run a statement and return its rows."""

    @abstractmethod
    async def _has_changed_one(self, name: str, *parameters: object) -> bool:
        """Run a statement; whether it has changed one row."""

    @abstractmethod
    async def _write(self, name: str, rows: list[tuple[Any, ...]], width: int) -> None:
        """Run a statement that writes rows of `width` values."""

    @abstractmethod
    async def _append(self, name: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert rows in the fastest way."""

    @abstractmethod
    def _table(self, rows: Collection[Sequence[Any]], width: int) -> Sequence[object]:
        """Rows of `width` values as parameters of a statement."""

    @abstractmethod
    def _columns(self, columns: Sequence[Sequence[Any]]) -> Sequence[object]:
        """Columns of equal length as parameters of a statement."""

    @abstractmethod
    def _list(self, values: Collection[Any]) -> object:
        """Values as one parameter of a statement."""

    # Conversions between Python's values and the database's; the default is no conversion.

    def _written(self, value: Any) -> Any:
        return value

    def _instant(self, value: Any) -> datetime:
        instant: datetime = value
        return instant

    def _day(self, value: Any) -> date:
        day: date = value
        return day

    def _uuid(self, value: Any) -> UUID:
        uuid: UUID = value
        return uuid


class Ledger(ABC):
    """The recorder's port to SQL."""

    @abstractmethod
    def transaction(self) -> AbstractAsyncContextManager[LedgerTransaction]:
        """A transaction: committed at the end, rolled back by an error."""

    async def positions(self, topic: str) -> Mapping[int, Position]:
        """The position of the first record that is not recorded, by partition with any records."""
        return {number: Position(*place) for number, *place in await self._find("positions", topic)}

    async def existing_companies(self, ids: Collection[int]) -> set[int]:
        """The ids among `ids` whose companies exist."""
        return {number for (number,) in await self._find("existing_companies", ids)}

    async def venue_time_zones(self, venues: Collection[int]) -> Mapping[int, str | None]:
        """The time zones of the venues that exist."""
        return dict(map(tuple, await self._find("venue_time_zones", venues)))

    @abstractmethod
    async def applications(self, keys: Collection[str]) -> Mapping[str, RegisteredApplication]:
        """Applications by their api_key."""

    @abstractmethod
    async def _find(self, name: str, parameter: str | Collection[Any]) -> list[Any]:
        """Run a statement outside of a transaction and return its rows."""


def _columns_of(devices: Mapping[StatisticKey, Collection[int]]) -> tuple[list[Any], ...]:
    """The columns day, kind, ref and device of the rows, in order, because rows are locked."""
    days, kinds, refs, ids = list[Any](), list[Any](), list[Any](), list[Any]()
    for key in sorted(devices):
        members = sorted(devices[key])
        ids += members
        for column, value in zip((days, kinds, refs), key, strict=True):
            column.extend(repeat(value, len(members)))
    return days, kinds, refs, ids


@cache
def statements(dialect: str) -> dict[str, str]:
    """The statements of a dialect, by name.

    `sql/` has one file for each dialect. Each statement in it begins with a line `-- name: <its
    name>`.
    """
    text = (files("engine.recorder") / "sql" / f"{dialect}.sql").read_text(encoding="utf-8")
    found = {}
    for part in text.split(_STATEMENT_MARK)[1:]:
        name, _, statement = part.partition("\n")
        found[name.strip()] = statement.strip().removesuffix(";")
    return found
