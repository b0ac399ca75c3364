"""The messages on Kafka, as types. docs/write_schemas.py makes the published schemas.

Decoders ignore unknown fields. Checks that a type cannot express (the forms of a uuid, a timestamp
and a zone's name) are in detections.py.
"""

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from catalog.fields import ZONES
from rules.model import Cap

EARLIEST_MS = 978_307_200_000  # 2001-01-01: a smaller number is epoch seconds
LATEST_MS = 253_402_300_799_000  # 9999-12-31T23:59:59Z: the last instant a datetime can hold
# The longest strings of a message. A longer one makes the record a dead letter, so that one sender
# can fill no cache.
LONGEST_UDID = 255
LONGEST_VALUE = 1024  # of a tag
LONGEST_DELAY = 99_999_999_999  # seconds; in Redis, as milliseconds of 14 digits

Id = Annotated[int, Meta(ge=0, le=2**63 - 1)]  # what SQL can store
Unsigned16 = Annotated[int, Meta(ge=0, le=65535)]
DigitString = Annotated[
    str,
    # detections.py checks it, and says in words what is wrong.
    Meta(max_length=16, extra_json_schema={"pattern": r"^\s*[0-9]+\s*$"}),
]
Timestamp = (
    Annotated[
        str,
        Meta(
            description="2026-11-20T10:00:00+0100 or RFC 3339",
            examples=["2026-11-20T10:00:00+0100"],
        ),
    ]
    | Annotated[
        int,
        Meta(
            description="epoch milliseconds, not before 2001",
            extra_json_schema={"minimum": EARLIEST_MS},
        ),
    ]
)
ZoneName = Annotated[
    str,
    Meta(
        max_length=32,
        description="immediate, near, far or unknown; any case, a leading 'Proximity' is allowed",
        examples=["near", "ProximityNear"],
    ),
]
ZoneThatTriggers = Literal["immediate", "near", "far"]
ZoneNumber = Annotated[
    int, Meta(ge=0, le=3, description="CoreLocation: 0 unknown, 1 immediate, 2 near, 3 far")
]
_Name = Annotated[str, Meta(max_length=128)]
_Ip = Annotated[str, Meta(max_length=64)]
TimeZone = Annotated[
    str,
    # check_device compares it with the names that exist.
    Meta(max_length=64, description="IANA name", examples=["Europe/Paris"]),
]
ApiKey = Annotated[str, Meta(min_length=1, max_length=255)]


class ReceivedDevice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The phone that reports, as in the interface: name is the operating system."""

    udid: Annotated[str, Meta(min_length=1, max_length=LONGEST_UDID)]
    name: _Name | None = None
    version: _Name | None = None
    model: _Name | None = None
    token_push: Annotated[str, Meta(max_length=4096)] | None = None
    id_connector: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    time_zone: TimeZone | None = None


class KnownDevice(ReceivedDevice, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The device of an outgoing message: as received, completed from the catalog's record."""

    id: Id | None = None
    # As long as the management interface allows.
    name: str | None = None
    version: str | None = None
    model: str | None = None
    token_push: str | None = None


class GeofenceEvent(msgspec.Struct, frozen=True, gc=False):
    """The phone's system has decided that the device entered, stayed in or left a geofence."""

    id: Annotated[int, Meta(ge=1, le=2**63 - 1, description="the geofence's, from the interface")]
    transition: Literal["enter", "dwell", "exit"]


class Coordinates(msgspec.Struct, frozen=True, gc=False):
    """Degrees (WGS 84), and metres of accuracy if the phone tells them."""

    latitude: Annotated[float, Meta(ge=-90, le=90)]
    longitude: Annotated[float, Meta(ge=-180, le=180)]
    accuracy: Annotated[float, Meta(ge=0)] | None = None


class ScannedTag(msgspec.Struct, frozen=True, gc=False):
    """An NFC tag or QR code that the device has read; `value` is compared exactly."""

    kind: Literal["nfc", "qrcode"]
    value: Annotated[
        str,
        Meta(min_length=1, max_length=LONGEST_VALUE, description="at most 1,024 bytes of UTF-8"),
    ]


class Detection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """`detections`: a device is at one place, a beacon (uuid, major, minor), geofence, position or
    tag. A beacon needs proximity or rssi (dBm), a position and a tag the application's api_key.
    """

    uuid: (
        Annotated[
            str, Meta(min_length=32, max_length=36, description="any case, with or without dashes")
        ]
        | None
    ) = None
    major: Unsigned16 | DigitString | None = None
    minor: Unsigned16 | DigitString | None = None
    device: ReceivedDevice
    geofence: GeofenceEvent | None = None
    position: Coordinates | None = None
    tag: ScannedTag | None = None
    api_key: ApiKey | None = None
    proximity: ZoneName | ZoneNumber | None = None
    rssi: float | None = None
    tx_power: float | None = None
    detected_at: Timestamp | None = None
    ip: _Ip | None = None


class Authentication(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """`authentications`: a device opened the application that owns `api_key`."""

    api_key: ApiKey
    device: ReceivedDevice
    authenticated_at: Timestamp | None = None
    ip: _Ip | None = None


class CampaignReference(msgspec.Struct, frozen=True, gc=False):
    """The campaign that fired."""

    id: Id
    name: str
    hash: str | None


class CompanyReference(msgspec.Struct, frozen=True, gc=False):
    """The company that owns venue, campaign and device."""

    id: Id


class VenueReference(msgspec.Struct, frozen=True, gc=False):
    """The venue of the place."""

    id: Id
    name: str


class BeaconReference(msgspec.Struct, frozen=True, gc=False):
    """The detected beacon; `uuid` in lower case with dashes."""

    id: Id
    name: str
    uuid: str
    major: Unsigned16
    minor: Unsigned16


class PlaceReference(msgspec.Struct, frozen=True, gc=False):
    """The geofence, NFC tag or QR code at which the device is."""

    id: Id
    name: str


class Firing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What is known when a campaign fires for a detection. Repeats carry the same `id`.

    One of `beacon`, `geofence`, `nfc` and `qrcode` is the place; a beacon has a `proximity`, except
    at an exit by silence. `on` and `visit_id` say that a visit fired it, and not a detection by
    itself.
    """

    id: str
    campaign: CampaignReference
    company: CompanyReference
    venue: VenueReference
    beacon: BeaconReference | None = None
    geofence: PlaceReference | None = None
    nfc: PlaceReference | None = None
    qrcode: PlaceReference | None = None
    proximity: ZoneThatTriggers | None = None
    on: Literal["enter", "dwell", "exit"] | None = None
    visit_id: str | None = None
    device: KnownDevice
    title: str
    push: str
    background: str | None
    color: str | None
    detected_at: str
    triggered_at: str
    expires_at: str


class Notification(Firing, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """`notifications`: what the push sender delivers. `format` names the field of the content."""

    format: Literal["template", "url", "html"]
    template: str | None = None
    url: str | None = None
    html: str | None = None


class VisitedPlace(msgspec.Struct, frozen=True, gc=False):
    """The beacon, geofence or venue of a visit. The name is empty once the place was deleted."""

    kind: Literal["beacon", "geofence", "venue"]
    id: Id
    name: str


class PresenceEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """`presence`: a device entered a place, stayed or left. Repeats carry the same `id`.

    The events of a visit share `visit_id` and come in order. `last_seen` is the newest detection of
    the visit; an exit is dated there (`exited_at`). Dwell comes for each `dwell_minutes` of the
    place's campaigns. `cause` says what ended the visit: silence, the signal or position, the
    device's own report, or an edit.
    """

    id: str
    visit_id: str
    type: Literal["enter", "dwell", "exit"]
    place: VisitedPlace
    venue: VenueReference
    company: CompanyReference
    device: KnownDevice
    entered_at: str
    last_seen: str
    exited_at: str | None = None
    duration_seconds: Id | None = None
    detections: int
    rssi_max: float | None = None
    cause: Literal["silence", "signal", "reported", "edited"] | None = None


class ConnectorEndpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """How to call the company's connector. `parameters` and `secret` stay encrypted."""

    id: Id
    name: str
    url: str
    method: str
    auth: str
    parameters: str | None = None
    secret: str | None = None


class ConnectorCall(Firing, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """`connector-calls` (internal): a claimed notification that still needs its content.

    `delay` is the campaign's cache delay in seconds. `caps` are those of the company that count the
    campaign, each a number of notifications and seconds. `connector` is absent if it has none.
    """

    delay: Annotated[int, Meta(ge=0, le=LONGEST_DELAY)]
    caps: tuple[Cap, ...] = ()
    connector: ConnectorEndpoint | None = None


_FORM = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:?\d\d)", re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_LONGEST_SHOWN = 60
# Devices report whole seconds and pipelines batch them, so most timestamps are in the cache.
_REMEMBERED = 16_384


def shown(value: object) -> str:
    """A value of a message as a detail shows it, on one line and not longer than 60 characters."""
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 1]}…"


def check_device(device: ReceivedDevice) -> None:
    """Raise ValueError for a udid that no database can hold, or an unknown time zone."""
    if "\0" in device.udid:
        raise ValueError(f"device.udid: {shown(device.udid)} has a NUL character")
    if device.time_zone is not None and device.time_zone not in ZONES:
        zone = shown(device.time_zone)
        raise ValueError(f"device.time_zone: {zone} is no IANA time zone, such as Europe/Paris")


@lru_cache(maxsize=_REMEMBERED)
def parse_text(text: str) -> float:
    """Epoch seconds of a written timestamp, to the millisecond. Raises ValueError.

    No finer, because Redis keeps claims in milliseconds, and memory must give the same answers.
    """
    if _FORM.fullmatch(text):
        with suppress(ValueError):  # a date that does not exist
            return (datetime.fromisoformat(text.upper()) - _EPOCH) // _MILLISECOND / 1000
    raise ValueError(
        f"{shown(text)} is no timestamp: write 2026-11-20T10:00:00+0100, RFC 3339, or integer "
        "epoch milliseconds"
    )


def parse(value: str | int) -> float:
    """Epoch seconds of a timestamp in any accepted form. Raises ValueError."""
    if isinstance(value, str):
        return parse_text(value)
    if EARLIEST_MS <= value <= LATEST_MS:
        return value / 1000
    if EARLIEST_MS <= value * 1000 <= LATEST_MS:
        meant = format_instant(value)
        raise ValueError(f"{value} is {meant} in epoch seconds: write epoch milliseconds")
    raise ValueError(f"{shown(value)} is no time from 2001 to 9999 in epoch milliseconds")


@lru_cache(maxsize=_REMEMBERED)
def _format_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S+0000")


def format_instant(epoch: float) -> str:
    """The timestamp in the first form, in UTC and whole seconds (rounded down)."""
    return _format_second(int(epoch // 1))
