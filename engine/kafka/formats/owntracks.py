"""OwnTracks: an iPhone that ranges beacons, one beacon per message.

The MQTT topic, owntracks/<user>/<device>/beacon, names the phone.
"""

from collections.abc import Iterable

import msgspec

from engine.kafka.formats.report import Report, Sighting, milliseconds, mqtt_topic
from engine.kafka.messages import Detection, ReceivedDevice, Unsigned16, ZoneNumber

_BEACON = "beacon"
_LEVELS = 4  # owntracks/<user>/<device>/beacon


class _Message(msgspec.Struct, gc=False):
    type_: str = msgspec.field(name="_type")


class _Beacon(msgspec.Struct, gc=False):
    uuid: str
    major: Unsigned16
    minor: Unsigned16
    tst: float | None = None  # epoch seconds
    prox: ZoneNumber | None = None
    rssi: float | None = None


_decode = msgspec.json.Decoder(_Message).decode
_decode_beacon = msgspec.json.Decoder(_Beacon).decode


def read(report: Report) -> Iterable[Sighting]:
    """The beacon of the message, if it is about one."""
    if _decode(report.value).type_ != _BEACON:
        return
    beacon = _decode_beacon(report.value)
    yield Sighting(
        0,
        Detection(
            uuid=beacon.uuid,
            major=beacon.major,
            minor=beacon.minor,
            proximity=beacon.prox,
            rssi=beacon.rssi,
            detected_at=None if beacon.tst is None else milliseconds(beacon.tst),
            device=ReceivedDevice(udid=_phone_of(mqtt_topic(report))),
        ),
    )


def _phone_of(levels: list[str]) -> str:
    """<user>/<device>, or the whole key if it is not such a topic."""
    if levels[-1] == _BEACON and len(levels) >= _LEVELS:
        return "/".join(levels[-3:-1])
    return "/".join(levels)
