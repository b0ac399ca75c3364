"""Minew gateways (G1 and its kin, JSON): an array of the gateway and of what it has heard.

The gateway tells of itself in an element of type Gateway, once a report; it is who hears.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from engine.kafka.formats.report import Report, Sighting, gateway, mqtt_topic
from engine.kafka.messages import Detection, Device, Unsigned16

_STATUS_LEVELS = 3  # /gw/<mac>/status


class _Element(msgspec.Struct, gc=False):
    """`mac` is the sender's: of a gateway its own, of a beacon the beacon's."""

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
    heard = [index for index, element in enumerate(elements) if element.type == "iBeacon"]
    if not heard:
        return
    device = Device(udid=gateway(_gateway_of(elements, report)))
    for index in heard:
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
    """The mac of the report's gateway, else of its MQTT topic, /gw/<mac>/status."""
    for element in elements:
        if element.type == "Gateway" and element.mac:
            return element.mac
    levels = mqtt_topic(report)
    return levels[-2] if len(levels) >= _STATUS_LEVELS else levels[-1]
