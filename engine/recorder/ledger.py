"""The port to SQL: one transaction that writes a batch and moves the partition's offset.

Both ledgers (postgresql.py, sqlite.py) keep the same promises, tested by the same suite. Their
methods raise what the driver raises; engine.process.failures says which of it passes.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol
from uuid import UUID

from engine.kafka.detections import BeaconKey
from engine.kafka.positions import Position
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


class Entry(Protocol):
    """An open transaction. Rows are locked in the order of their keys, whoever calls."""

    async def advance(self, topic: str, partition: int, old: int | None, new: int) -> bool:
        """Move the offset from `old` (None: there is none yet) to `new`; False if it is not
        `old`. Later writers of the partition wait for this transaction."""

    async def now(self) -> datetime:
        """The present on SQL's clock; the same for all of the transaction's rows."""

    async def places(self, keys: Collection[BeaconKey]) -> Mapping[BeaconKey, Place]:
        """Those of the beacons that are active, at an active venue."""

    async def add_devices(
        self, news: Mapping[DeviceKey, DeviceNews], now: datetime
    ) -> Mapping[DeviceKey, KnownDevice]:
        """Create or update devices and add to their counters; what is None stays as it is.

        Raises CompanyGoneError.
        """

    async def add_detections(self, rows: Sequence[DetectionRow]) -> None:
        """Append to the trace."""

    async def add_authentications(self, rows: Sequence[AuthenticationRow]) -> None:
        """Append to the trace."""

    async def counted(self, notifications: Collection[UUID]) -> set[UUID]:
        """Those that were counted before."""

    async def add_receptions(self, rows: Sequence[ReceptionRow]) -> None:
        """Note notifications as counted. Raises AlreadyCountedError."""

    async def presences(self, keys: Collection[PresenceKey]) -> dict[PresenceKey, PresenceState]:
        """The last trace rows of devices at beacons."""

    async def set_presences(self, states: Mapping[PresenceKey, PresenceState]) -> None:
        """Replace them."""

    async def add_statistics(
        self, figures: Mapping[StatisticKey, Figures], devices: Collection[StatisticDevice]
    ) -> None:
        """Add to the figures of days; a device that is new in a day's figures is counted there."""


class Ledger(Protocol):
    """SQL, as the recorder sees it."""

    def entry(self) -> AbstractAsyncContextManager[Entry]:
        """A transaction: committed at the end, rolled back by an error."""

    async def next_offsets(self, topic: str) -> Mapping[int, int]:
        """The first record that is not recorded, by partition, where any is."""

    async def known_places(self, topic: str) -> Mapping[int, Position]:
        """The same, each with the id of the topic that it is of."""

    async def move_place(
        self, topic: str, partition: int, old: Position | None, new: Position
    ) -> bool:
        """Put a place in the stead of `old` (None: there is none); False if it is not `old`."""

    async def companies(self, ids: Collection[int]) -> set[int]:
        """Those that exist."""

    async def time_zones(self, venues: Collection[int]) -> Mapping[int, str | None]:
        """The time zones of venues that exist."""

    async def applications(self, keys: Collection[str]) -> Mapping[str, Application]:
        """Applications by their api_key."""


class CompanyGoneError(Exception):
    """A company was deleted after it was looked up: look again."""


class AlreadyCountedError(Exception):
    """Another transaction has just counted one of these notifications: look again."""


class DayMadeError(Exception):
    """A day's partition came into being while rows were on their way elsewhere: write again."""
