"""ESPresense: a node's measurement of one device, which may be an iBeacon.

The MQTT topic, espresense/devices/<id>/<room>, names the room of the node.
"""

import re
from collections.abc import Iterable

import msgspec

from engine.kafka.formats.report import Report, Sighting, gateway, mqtt_topic
from engine.kafka.messages import Detection, ReceivedDevice

_PREFIX = "ibeacon:"
_IBEACON = re.compile(r"(?P<uuid>[0-9a-f-]{32,36})-(?P<major>\d{1,5})-(?P<minor>\d{1,5})", re.ASCII)


class _Measurement(msgspec.Struct, gc=False):
    id: str
    rssi: float
    reference: float | None = msgspec.field(name="rssi@1m", default=None)


_decode = msgspec.json.Decoder(_Measurement).decode


def read(report: Report) -> Iterable[Sighting]:
    """The iBeacon of the measurement, if it is about one."""
    measurement = _decode(report.value)
    id_ = measurement.id.lower()
    if not id_.startswith(_PREFIX):
        return
    found = _IBEACON.fullmatch(id_, len(_PREFIX))
    if found is None:
        raise ValueError("the id must be iBeacon:<uuid>-<major>-<minor> - at `$.id`")
    yield Sighting(
        0,
        Detection(
            uuid=found["uuid"],
            major=found["major"],
            minor=found["minor"],
            rssi=measurement.rssi,
            tx_power=measurement.reference,
            device=ReceivedDevice(udid=gateway(mqtt_topic(report)[-1])),
        ),
    )
