"""ESPresense: what a room's node reads of one device, an iBeacon or another.

The room says the MQTT topic, espresense/devices/<id>/<room>.
"""

import re
from collections.abc import Iterable

import msgspec

from engine.kafka.formats.report import Report, Sighting, gateway, mqtt_topic
from engine.kafka.messages import Detection, Device

_PREFIX = "ibeacon:"
_IBEACON = re.compile(r"(?P<uuid>[0-9a-f-]{32,36})-(?P<major>\d{1,5})-(?P<minor>\d{1,5})", re.ASCII)


class _Reading(msgspec.Struct, gc=False):
    id: str
    rssi: float
    reference: float | None = msgspec.field(name="rssi@1m", default=None)


_decode = msgspec.json.Decoder(_Reading).decode


def read(report: Report) -> Iterable[Sighting]:
    """The iBeacon of the reading, if it is about one."""
    reading = _decode(report.value)
    id_ = reading.id.lower()
    if not id_.startswith(_PREFIX):
        return
    found = _IBEACON.fullmatch(id_, len(_PREFIX))
    if found is None:
        raise ValueError("an id is iBeacon:<uuid>-<major>-<minor> - at `$.id`")
    yield Sighting(
        0,
        Detection(
            uuid=found["uuid"],
            major=found["major"],
            minor=found["minor"],
            rssi=reading.rssi,
            tx_power=reading.reference,
            device=Device(udid=gateway(mqtt_topic(report)[-1])),
        ),
    )
