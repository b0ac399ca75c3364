"""What the recorder writes, as rows. Instants are aware and in UTC."""

from datetime import date, datetime
from typing import NamedTuple
from uuid import UUID

import msgspec

VENUE, BEACON, CAMPAIGN = "venue", "beacon", "campaign"


class Place(NamedTuple):
    """An active beacon at an active venue. `time_zone` is an IANA name."""

    beacon_id: int
    venue_id: int
    company_id: int
    time_zone: str | None


class Application(NamedTuple):
    """A mobile application that may sign in until `expire_on`."""

    id: int
    company_id: int
    active: bool
    expire_on: datetime | None


class DeviceKey(NamedTuple):
    """What names a device."""

    company_id: int
    udid: str


class DeviceNews(msgspec.Struct):
    """What a batch says of a device: what to add to its counters, and what is known of it last.

    The statements of both ledgers take the fields in this order.
    """

    nb_beacon: int = 0
    nb_campaign: int = 0
    token_push: str | None = None
    name: str | None = None
    version: str | None = None
    model: str | None = None
    id_connector: int | None = None


class KnownDevice(NamedTuple):
    """A device's record."""

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
    """The last trace row there: its zone, and its instant."""

    status: str
    create_on: datetime


class StatisticKey(NamedTuple):
    """One day of a venue, beacon or campaign (`kind`), `ref` its id."""

    day: date
    kind: str
    ref: int


class StatisticDevice(NamedTuple):
    """A device that belongs into a day's figures."""

    day: date
    kind: str
    ref: int
    device_id: int


class Figures(msgspec.Struct):
    """What to add to a day's figures."""

    venue_id: int
    detections: int = 0
    notifications: int = 0
