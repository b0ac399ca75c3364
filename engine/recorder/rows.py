"""The rows that the recorder reads from SQL and writes to it. Instants are aware and in UTC."""

from collections.abc import Sequence
from datetime import date, datetime
from typing import NamedTuple, Protocol, runtime_checkable
from uuid import UUID

import msgspec

from rules.model import Zone

VENUE, BEACON, CAMPAIGN = "venue", "beacon", "campaign"
STATUS = {zone: zone.name.lower() for zone in Zone}  # of a trace row


class ActiveBeacon(NamedTuple):
    """An active beacon at an active venue. `time_zone` is an IANA name."""

    beacon_id: int
    venue_id: int
    company_id: int
    time_zone: str | None


class RegisteredApplication(NamedTuple):
    """A mobile application, whose key is valid until `expire_on`."""

    id: int
    company_id: int
    active: bool
    expire_on: datetime | None

    def admits(self, instant: float) -> bool:
        """Whether the key is valid at `instant` (epoch seconds)."""
        return self.active and (self.expire_on is None or instant < self.expire_on.timestamp())


class DeviceIdentity(NamedTuple):
    """A device's company and its udid there."""

    company_id: int
    udid: str


class DeviceChanges(msgspec.Struct):
    """The additions to a device's counters, and the last known facts of the device.

    The statements of both ledgers take the fields in this order.
    """

    nb_beacon: int = 0
    nb_campaign: int = 0
    token_push: str | None = None
    name: str | None = None
    version: str | None = None
    model: str | None = None
    id_connector: int | None = None


class DeviceColumns(NamedTuple):
    """Devices and their changes, as columns in the order of DeviceIdentity and DeviceChanges. The
    rows are in the order of (company, udid)."""

    company_id: Sequence[int]
    udid: Sequence[str]
    nb_beacon: Sequence[int]
    nb_campaign: Sequence[int]
    token_push: Sequence[str | None]
    name: Sequence[str | None]
    version: Sequence[str | None]
    model: Sequence[str | None]
    id_connector: Sequence[int | None]


class ToldDevice(NamedTuple):
    """A device's row, with its identity. `new`: it is certain that this transaction created it."""

    company_id: int
    udid: str
    id: int
    test: bool
    new: bool


class StoredDevice(NamedTuple):
    """A device's row. A test device has no part in statistics."""

    id: int
    test: bool


class DetectionRow(NamedTuple):
    """A row of detection_trace."""

    device_id: int
    venue_id: int
    beacon_id: int
    status: str
    create_on: datetime
    ip: str | None


@runtime_checkable
class CopiedRows(Protocol):
    """A sequence of rows that are also written as a binary COPY, of the rows' fields."""

    def as_copy(self) -> bytearray: ...


class AuthenticationRow(NamedTuple):
    """A row of authentication_trace."""

    device_id: int
    application_id: int
    create_on: datetime
    ip: str | None


class ReceptionRow(NamedTuple):
    """A row of reception."""

    notification: UUID
    device_id: int
    campaign_id: int
    create_on: datetime


class PresenceKey(NamedTuple):
    """A device at a beacon."""

    device_id: int
    beacon_id: int


class PresenceState(NamedTuple):
    """The zone and the instant of the last trace row of a device at a beacon."""

    status: str
    create_on: datetime


class StatisticKey(NamedTuple):
    """One day of a venue, beacon or campaign (`kind`), `ref` its id."""

    day: date
    kind: str
    ref: int


class FigureIncrements(msgspec.Struct):
    """The additions to a day's figures."""

    venue_id: int
    detections: int = 0
    notifications: int = 0
