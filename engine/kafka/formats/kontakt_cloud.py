"""Kontakt.io's cloud (Kio Cloud): its telemetry stream, as Event Hubs and bridges forward it.

An event says that one gateway received one beacon. It has the triple if the beacon advertises an
iBeacon. Events of the other streams (position, occupancy, presence) have no triple.
"""

from collections.abc import Iterable

import msgspec

from engine.kafka.formats.report import Report, Sighting, gateway, milliseconds
from engine.kafka.messages import Detection, ReceivedDevice, Unsigned16


class _Event(msgspec.Struct, gc=False):
    """An event of any stream. Without `uuid` it is not about an iBeacon."""

    uuid: str | None = msgspec.field(name="iBeaconProximity", default=None)


class _Page(msgspec.Struct, gc=False):
    """An answer of the operation GET /v3/telemetry."""

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
    """The iBeacons in one event, in a list of events, or in a page of them."""
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
                detected_at=_received_at(beacon),
                device=ReceivedDevice(udid=gateway(beacon.source_id)),
            ),
        )


def _received_at(beacon: _IBeacon) -> str | int | None:
    """The gateway's time, else the cloud's; a number is epoch seconds."""
    at = beacon.timestamp if beacon.gateway_timestamp is None else beacon.gateway_timestamp
    return milliseconds(at) if isinstance(at, float) else at
