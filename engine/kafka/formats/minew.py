"""Minew gateways (the G1 and similar ones, JSON): an array of elements, one for each advertisement.

One element of a report has the type Gateway and describes the gateway, which is the receiver.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from engine.kafka.formats.report import Report, Sighting, gateway, mqtt_topic
from engine.kafka.messages import Detection, ReceivedDevice, Unsigned16

_STATUS_LEVELS = 3  # /gw/<mac>/status


class _Element(msgspec.Struct, gc=False):
    """An element of any type; `mac` is the address of the gateway or of the beacon."""

    type: str
    mac: str = ""


class _IBeacon(msgspec.Struct, gc=False):
    type: Literal["iBeacon"]
    ibeacon_uuid: str = msgspec.field(name="ibeaconUuid")
    ibeacon_major: Unsigned16 = msgspec.field(name="ibeaconMajor")
    ibeacon_minor: Unsigned16 = msgspec.field(name="ibeaconMinor")
    rssi: float
    timestamp: str | None = None
    ibeacon_tx_power: float | None = msgspec.field(name="ibeaconTxPower", default=None)


_decode = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_element = msgspec.json.Decoder(_Element).decode
_decode_ibeacon = msgspec.json.Decoder(_IBeacon).decode


def read(report: Report) -> Iterable[Sighting]:
    """The iBeacons of the array."""
    parts = _decode(report.value)
    elements = [_decode_element(part) for part in parts]
    ibeacons = [index for index, element in enumerate(elements) if element.type == "iBeacon"]
    if not ibeacons:
        return
    device = ReceivedDevice(udid=gateway(_gateway_of(elements, report)))
    for index in ibeacons:
        beacon = _decode_ibeacon(parts[index])
        yield Sighting(
            index,
            Detection(
                uuid=beacon.ibeacon_uuid,
                major=beacon.ibeacon_major,
                minor=beacon.ibeacon_minor,
                rssi=beacon.rssi,
                tx_power=beacon.ibeacon_tx_power,
                detected_at=beacon.timestamp,
                device=device,
            ),
        )


def _gateway_of(elements: list[_Element], report: Report) -> str:
    """The mac of the report's gateway, else the one in its MQTT topic, /gw/<mac>/status."""
    for element in elements:
        if element.type == "Gateway" and element.mac:
            return element.mac
    levels = mqtt_topic(report)
    return levels[-2] if len(levels) >= _STATUS_LEVELS else levels[-1]
