"""The messages on Kafka, as types. The published schemas are generated from these (schemas.py).

Decoders ignore unknown fields. Checks that a type cannot express (the forms of a uuid, a timestamp
and a zone's name) are in detections.py.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Unsigned16 = Annotated[int, Meta(ge=0, le=65535)]
DigitString = Annotated[str, Meta(pattern=r"^\s*[0-9]{1,5}\s*$")]
Timestamp = (
    Annotated[
        str,
        Meta(
            description="2026-11-20T10:00:00+0100 or RFC 3339",
            examples=["2026-11-20T10:00:00+0100"],
        ),
    ]
    | Annotated[int, Meta(ge=0, description="epoch milliseconds")]
)
ZoneName = Annotated[
    str,
    Meta(
        description="immediate, near, far or unknown; any case, a leading 'Proximity' is allowed",
        examples=["near", "ProximityNear"],
    ),
]
ZoneThatTriggers = Literal["immediate", "near", "far"]
ZoneNumber = Annotated[
    int, Meta(ge=0, le=3, description="CoreLocation: 0 unknown, 1 immediate, 2 near, 3 far")
]


class ReceivedDevice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The phone that reports, as in the interface: name is the operating system."""

    udid: Annotated[str, Meta(min_length=1, max_length=255)]
    name: str | None = None
    version: str | None = None
    model: str | None = None
    token_push: str | None = None
    id_connector: int | None = None


class KnownDevice(ReceivedDevice, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The device of an outgoing message: as received, with the `id` of its record if known."""

    id: int | None = None


class Detection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """`detections`: a device detected a beacon. One of proximity and rssi (dBm) is required."""

    uuid: Annotated[
        str, Meta(min_length=32, max_length=36, description="any case, with or without dashes")
    ]
    major: Unsigned16 | DigitString
    minor: Unsigned16 | DigitString
    device: ReceivedDevice
    proximity: ZoneName | ZoneNumber | None = None
    rssi: float | None = None
    tx_power: float | None = None
    detected_at: Timestamp | None = None
    ip: str | None = None


class Authentication(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """`authentications`: a device opened the application that owns `api_key`."""

    api_key: Annotated[str, Meta(min_length=1)]
    device: ReceivedDevice
    authenticated_at: Timestamp | None = None
    ip: str | None = None


class CampaignReference(msgspec.Struct, frozen=True, gc=False):
    """The campaign that fired."""

    id: int
    name: str
    hash: str | None


class CompanyReference(msgspec.Struct, frozen=True, gc=False):
    """The company that owns venue, campaign and device."""

    id: int


class VenueReference(msgspec.Struct, frozen=True, gc=False):
    """The venue of the beacon."""

    id: int
    name: str


class BeaconReference(msgspec.Struct, frozen=True, gc=False):
    """The detected beacon; `uuid` in lower case with dashes."""

    id: int
    name: str
    uuid: str
    major: int
    minor: int


class Firing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What is known when a campaign fires for a detection. Repeats carry the same `id`."""

    id: str
    campaign: CampaignReference
    company: CompanyReference
    venue: VenueReference
    beacon: BeaconReference
    proximity: ZoneThatTriggers
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


class ConnectorEndpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """How to call the company's connector. `parameters` and `secret` stay encrypted."""

    id: int
    name: str
    url: str
    method: str
    auth: str
    parameters: str | None = None
    secret: str | None = None


class ConnectorCall(Firing, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """`connector-calls` (internal): a claimed notification that still needs its content.

    `delay` is the campaign's cache delay in seconds. `connector` is absent if the company has none.
    """

    delay: int
    connector: ConnectorEndpoint | None = None
