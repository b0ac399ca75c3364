"""Theengs Gateway and OpenMQTTGateway: the JSON of Theengs Decoder, one iBeacon per message.

The MQTT topic names the gateway: <base>/<gateway>/BTtoMQTT/<mac>, or <base>/presence/<gateway>.
"""

from collections.abc import Iterable

import msgspec

from engine.kafka.formats.report import Report, Sighting, gateway, mqtt_topic
from engine.kafka.messages import Detection, ReceivedDevice, Unsigned16

_IBEACON = "IBEACON"
_TO_MQTT = "BTtoMQTT"


class _Message(msgspec.Struct, gc=False):
    model_id: str | None = None


class _IBeacon(msgspec.Struct, gc=False):
    uuid: str
    major: Unsigned16
    minor: Unsigned16
    rssi: float
    txpower: float | None = None
    power: float | None = None  # the name of txpower before 2023


_decode = msgspec.json.Decoder(_Message).decode
_decode_ibeacon = msgspec.json.Decoder(_IBeacon).decode


def read(report: Report) -> Iterable[Sighting]:
    """The iBeacon of the message, if it is about one."""
    if (_decode(report.value).model_id or "").upper() != _IBEACON:
        return
    beacon = _decode_ibeacon(report.value)
    yield Sighting(
        0,
        Detection(
            uuid=beacon.uuid,
            major=beacon.major,
            minor=beacon.minor,
            rssi=beacon.rssi,
            tx_power=beacon.txpower if beacon.txpower is not None else beacon.power,
            device=ReceivedDevice(udid=gateway(_gateway_of(mqtt_topic(report)))),
        ),
    )


def _gateway_of(levels: list[str]) -> str:
    """The level before BTtoMQTT, else the last level."""
    return levels[levels.index(_TO_MQTT) - 1] if _TO_MQTT in levels[1:] else levels[-1]
