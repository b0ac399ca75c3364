"""Kontakt.io's cloud (Kio Cloud): its stream of telemetry, as Event Hubs and bridges hand it on.

An event is what one gateway has heard of one beacon; those whose beacon advertises an iBeacon name
its triple. Events of the other streams (position, occupancy, presence) name none.
"""

from collections.abc import Iterable

import msgspec

from engine.kafka.formats.report import Report, Sighting, gateway, milliseconds
from engine.kafka.messages import Detection, Device, Unsigned16


class _Event(msgspec.Struct, gc=False):
    """Of any stream. Without `uuid` it is about no iBeacon."""

    uuid: str | None = msgspec.field(name="iBeaconProximity", default=None)


class _Page(msgspec.Struct, gc=False):
    """What the interface GET /v3/telemetry answers."""

    content: list[msgspec.Raw] | None = None


class _IBeacon(msgspec.Struct, gc=False):
    uuid: str = msgspec.field(name="iBeaconProximity")
    major: Unsigned16 = msgspec.field(name="iBeaconMajor")
    minor: Unsigned16 = msgspec.field(name="iBeaconMinor")
    source_id: str = msgspec.field(name="sourceId")
    rssi: float
    gateway_timestamp: str | float | None = msgspec.field(name="gatewayTimestamp", default=None)
    timestamp: str | float | None = None  # when the cloud received it
    reference: float | None = msgspec.field(name="calibratedRssi1m", default=None)


_decode = msgspec.json.Decoder(_Page | list[msgspec.Raw]).decode
_decode_event = msgspec.json.Decoder(_Event).decode
_decode_ibeacon = msgspec.json.Decoder(_IBeacon).decode


def read(report: Report) -> Iterable[Sighting]:
    """The iBeacons among the events: of one, of a list, or of a page."""
    found = _decode(report.value)
    events = found.content if isinstance(found, _Page) else found
    for index, event in enumerate([report.value] if events is None else events):
        if not _decode_event(event).uuid:
            continue
        beacon = _decode_ibeacon(event)
        yield Sighting(
            index,
            Detection(
                uuid=beacon.uuid,
                major=beacon.major,
                minor=beacon.minor,
                rssi=beacon.rssi,
                tx_power=beacon.reference,
                detected_at=_heard_at(beacon),
                device=Device(udid=gateway(beacon.source_id)),
            ),
        )


def _heard_at(beacon: _IBeacon) -> str | int | None:
    """The gateway's time, else the cloud's; a number is epoch seconds."""
    at = beacon.timestamp if beacon.gateway_timestamp is None else beacon.gateway_timestamp
    return milliseconds(at) if isinstance(at, float) else at
