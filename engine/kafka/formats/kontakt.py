"""Kontakt.io gateways: events with the bytes of an advertisement, of an iBeacon or another packet.

In version 3 the event has the advertisement, in version 4 its object `ble`.
"""

import base64
from collections.abc import Iterable

import msgspec

from engine.kafka.formats.advertisement import ibeacon_frame
from engine.kafka.formats.report import Report, Sighting, gateway
from engine.kafka.messages import Detection, ReceivedDevice

_VERSIONS = (3, 4)
_LATEST_SECONDS = 2**31 - 1  # above it a gateway's timestamp is milliseconds, as in their parser


class _Packet(msgspec.Struct, gc=False):
    data: str | None = None


class _Event(msgspec.Struct, gc=False):
    rssi: float
    timestamp: int | None = None
    data: str | None = None
    ble: _Packet | None = None


class _Upload(msgspec.Struct, gc=False):
    version: int
    source_id: str = msgspec.field(name="sourceId")
    events: list[_Event]


_decode = msgspec.json.Decoder(_Upload).decode


def read(report: Report) -> Iterable[Sighting]:
    """The iBeacons among the events; telemetry and other packets are ignored."""
    upload = _decode(report.value)
    if upload.version not in _VERSIONS:
        raise ValueError("the version must be 3 or 4 - at `$.version`")
    device = ReceivedDevice(udid=gateway(upload.source_id))
    for index, event in enumerate(upload.events):
        packet = event.data if event.ble is None else event.ble.data
        frame = None if packet is None else ibeacon_frame(base64.b64decode(packet, validate=True))
        if frame is None:
            continue
        yield Sighting(
            index,
            Detection(
                uuid=frame.uuid,
                major=frame.major,
                minor=frame.minor,
                rssi=event.rssi,
                tx_power=frame.tx_power,
                detected_at=None if event.timestamp is None else _milliseconds(event.timestamp),
                device=device,
            ),
        )


def _milliseconds(timestamp: int) -> int:
    return timestamp if timestamp > _LATEST_SECONDS else timestamp * 1000
