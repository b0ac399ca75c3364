"""The port to SQL: one transaction that writes a batch and moves the partition's offset.

Both ledgers (postgresql.py, sqlite.py) keep the same promises, tested by the same suite. Their
methods raise what the driver raises; engine.process.failures says which of it passes.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Protocol
from uuid import UUID

from engine.kafka.detections import BeaconKey
from engine.kafka.positions import Position
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

_STATEMENT_MARK = "-- name: "


class LedgerTransaction(Protocol):
    """An open transaction. It locks rows in the order of their keys."""

    async def advance_offset(self, topic: str, partition: int, old: int | None, new: int) -> bool:
        """Move the offset from `old` (None: there is none yet) to `new`; False if it is not
        `old`. Later writers of the partition wait for this transaction."""

    async def move_position(
        self, topic: str, partition: int, old: Position | None, new: Position
    ) -> bool:
        """Replace the position `old` (None: there is none); False if it is not `old`. That the
        topic of `old` is no more is noted for `verify`."""

    async def now(self) -> datetime:
        """The present on SQL's clock; the same for all rows of the transaction."""

    async def active_beacons(self, keys: Collection[BeaconKey]) -> Mapping[BeaconKey, ActiveBeacon]:
        """The beacons that are active, at an active venue."""

    async def add_devices(
        self, updates: Mapping[DeviceIdentity, DeviceChanges], now: datetime
    ) -> Mapping[DeviceIdentity, StoredDevice]:
        """Create or update devices and add to their counters; what is None stays as it is.

        Raises CompanyDeletedError.
        """

    async def add_detections(self, rows: Sequence[DetectionRow]) -> None:
        """Append to the trace. Raises DayPartitionCreatedError."""

    async def add_authentications(self, rows: Sequence[AuthenticationRow]) -> None:
        """Append to the trace. Raises DayPartitionCreatedError."""

    async def counted_notifications(self, ids: Collection[UUID]) -> set[UUID]:
        """The notifications that were counted before."""

    async def add_receptions(self, rows: Sequence[ReceptionRow]) -> None:
        """Note notifications as counted. Raises AlreadyCountedError."""

    async def presences(self, keys: Collection[PresenceKey]) -> dict[PresenceKey, PresenceState]:
        """The last trace rows of devices at beacons."""

    async def set_presences(self, states: Mapping[PresenceKey, PresenceState]) -> None:
        """Replace the last trace rows of devices at beacons."""

    async def add_statistics(
        self,
        figures: Mapping[StatisticKey, FigureIncrements],
        devices: Collection[StatisticDeviceRow],
    ) -> None:
        """Add to the figures of days; a device that is new in a day's figures is counted there."""


class Ledger(Protocol):
    """SQL, as the recorder sees it."""

    def transaction(self) -> AbstractAsyncContextManager[LedgerTransaction]:
        """A transaction: committed at the end, rolled back by an error."""

    async def positions(self, topic: str) -> Mapping[int, Position]:
        """The first record that is not recorded, by partition, where any is recorded."""

    async def existing_companies(self, ids: Collection[int]) -> set[int]:
        """The companies that exist."""

    async def venue_time_zones(self, venues: Collection[int]) -> Mapping[int, str | None]:
        """The time zones of venues that exist."""

    async def applications(self, keys: Collection[str]) -> Mapping[str, RegisteredApplication]:
        """Applications by their api_key."""


class OffsetStatements(ABC):
    """The statements for the table recorder_offset, whose parameters both databases share."""

    async def advance_offset(self, topic: str, partition: int, old: int | None, new: int) -> bool:
        if old is None:
            return await self._has_changed_one("begin_offset", topic, partition, new)
        return await self._has_changed_one("advance_offset", topic, partition, new, old)

    async def move_position(
        self, topic: str, partition: int, old: Position | None, new: Position
    ) -> bool:
        if old is None:
            return await self._has_changed_one("first_position", topic, partition, *new[:2])
        if not await self._has_changed_one("move_position", topic, partition, *new[:2], *old[:2]):
            return False
        if old.topic_ended_before(new):
            await self._has_changed_one("note_past", topic)
        return True

    @abstractmethod
    async def _has_changed_one(self, name: str, *parameters: object) -> bool:
        """Run a statement; whether it has changed one row."""


@cache
def statements(dialect: str) -> dict[str, str]:
    """The statements of a dialect, by name: `sql/` has a file of them, in which each begins with a
    line `-- name: <its name>`."""
    text = (files("engine.recorder") / "sql" / f"{dialect}.sql").read_text(encoding="utf-8")
    found = {}
    for part in text.split(_STATEMENT_MARK)[1:]:
        name, _, statement = part.partition("\n")
        found[name.strip()] = statement.strip().removesuffix(";")
    return found
