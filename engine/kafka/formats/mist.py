"""Juniper Mist: the webhooks asset-raw-rssi and discovered-raw-rssi, with many events a message.

The receiver is an access point; `device_id` is its id.
"""

from collections.abc import Iterable

import msgspec

from engine.kafka.formats.report import Report, Sighting, gateway, milliseconds
from engine.kafka.messages import Detection, ReceivedDevice, Unsigned16


class _Event(msgspec.Struct, gc=False):
    """An event of any kind. Without a uuid it is not about an iBeacon."""

    ibeacon_uuid: str | None = None


class _Webhook(msgspec.Struct, gc=False):
    topic: str
    events: list[msgspec.Raw]


class _IBeacon(msgspec.Struct, gc=False):
    device_id: str
    ibeacon_uuid: str
    ibeacon_major: Unsigned16
    ibeacon_minor: Unsigned16
    rssi: float
    timestamp: float | None = None  # epoch seconds


_RAW = ("asset-raw-rssi", "discovered-raw-rssi")
_decode = msgspec.json.Decoder(_Webhook).decode
_decode_event = msgspec.json.Decoder(_Event).decode
_decode_ibeacon = msgspec.json.Decoder(_IBeacon).decode


def read(report: Report) -> Iterable[Sighting]:
    """The iBeacons of the events. Webhooks that report a position without a receiver have none."""
    webhook = _decode(report.value)
    if webhook.topic not in _RAW:
        return
    for index, event in enumerate(webhook.events):
        if not _decode_event(event).ibeacon_uuid:
            continue
        beacon = _decode_ibeacon(event)
        at = beacon.timestamp
        yield Sighting(
            index,
            Detection(
                uuid=beacon.ibeacon_uuid,
                major=beacon.ibeacon_major,
                minor=beacon.ibeacon_minor,
                rssi=beacon.rssi,
                detected_at=None if at is None else milliseconds(at),
                device=ReceivedDevice(udid=gateway(beacon.device_id)),
            ),
        )
