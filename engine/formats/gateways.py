"""Reports of gateways, of their clouds, and of phones, in JSON.

A `read_…` function gives the sightings of iBeacons, or the positions of phones, in a report.
Anything that is valid and about neither has no sighting.
"""

import base64
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from engine.formats.report import ReadReport, Report, Sighting, utf8
from engine.kafka.messages import Detection, parse_text

_Object: TypeAlias = dict[str, Any]  # a JSON object of any kind
_decode = msgspec.json.decode
_API_KEY = "api_key"  # the header with the key of the application that sends
_LATEST = 253_402_300_799  # epoch seconds, the end of year 9999


def _mqtt_topic(report: Report) -> list[str]:
    """The levels of the MQTT topic of a report.

    MQTT bridges put the topic into a header `mqtt.topic` or into the key. Raises ValueError if
    there is neither.
    """
    text = report.header_text("mqtt.topic")
    if text is None and report.key is not None:
        text = utf8(report.key, "key")
    if not text:
        raise ValueError("neither the key nor a header mqtt.topic names the receiver")
    return text.split("/")


def _timestamp(written: object) -> float | None:
    """Epoch seconds of a text or of a number of epoch seconds, to the millisecond. Raises
    ValueError."""
    if written is None:
        return None
    if isinstance(written, str):
        return parse_text(written)
    if isinstance(written, int | float) and 0 <= written <= _LATEST:
        return round(written * 1000) / 1000
    raise ValueError("epoch seconds must be between 0 and the end of year 9999")


def _gateway(name: object) -> str:
    """The udid of a gateway, with a prefix that keeps it apart from phones'. Raises ValueError."""
    if not name or not isinstance(name, str):
        raise ValueError("the gateway has no name")
    return f"gateway:{name}"


def _detection(udid: str, fields: Mapping[str, Any]) -> Detection:
    """The detection with these fields of this device. Raises msgspec.ValidationError."""
    return msgspec.convert({**fields, "device": {"udid": udid}}, Detection)


def _renamed(found: _Object, **names: str) -> _Object:
    """Fields of a detection, by their names in a report."""
    return {name: found.get(theirs) for name, theirs in names.items()}


_MANUFACTURER = 0xFF
_APPLE_IBEACON = bytes.fromhex("4c000215")  # 21 bytes follow
_IBEACON_LENGTH = 25


def _ibeacon_fields(advertisement: bytes) -> _Object | None:
    """What the iBeacon frame of an advertisement says of a detection; None if there is no frame,
    also for an advertisement that is cut off.

    An advertisement is a sequence of structures of length, type and data (Bluetooth Core
    Specification, supplement, part A; Apple's "Proximity Beacon Specification").
    """
    at = 0
    while at < len(advertisement):
        end = at + 1 + advertisement[at]
        data = advertisement[at + 2 : end]
        if end > len(advertisement) or end == at + 1:
            return None  # cut off, or padded with zeros
        is_ibeacon = data[:4] == _APPLE_IBEACON and len(data) == _IBEACON_LENGTH
        if advertisement[at + 1] == _MANUFACTURER and is_ibeacon:
            return {
                "uuid": data[4:20].hex(),
                "major": int.from_bytes(data[20:22]),
                "minor": int.from_bytes(data[22:24]),
                "tx_power": int.from_bytes(data[24:25], signed=True),  # dBm at one metre
            }
        at = end
    return None


_MINEW_LEVELS = 3  # /gw/<mac>/status


def read_minew(report: Report) -> Iterable[Sighting]:
    """Minew gateways (the G1 and similar ones): an array of an element for each advertisement.

    One element has the type Gateway and describes the gateway, which is the receiver.
    """
    elements = _decode(report.value, type=list[_Object])
    ibeacons = [index for index, each in enumerate(elements) if each.get("type") == "iBeacon"]
    if not ibeacons:
        return
    udid = _gateway(_minew_gateway(elements, report))
    for index in ibeacons:
        fields = _renamed(
            elements[index],
            uuid="ibeaconUuid",
            major="ibeaconMajor",
            minor="ibeaconMinor",
            rssi="rssi",
            tx_power="ibeaconTxPower",
        )
        at = _timestamp(elements[index].get("timestamp"))
        yield Sighting(index, _detection(udid, fields), at)


def _minew_gateway(elements: list[_Object], report: Report) -> str:
    """The mac of the report's gateway, else the one in its MQTT topic, /gw/<mac>/status."""
    for element in elements:
        if element.get("type") == "Gateway" and element.get("mac"):
            return str(element["mac"])
    levels = _mqtt_topic(report)
    return levels[-2] if len(levels) >= _MINEW_LEVELS else levels[-1]


_TO_MQTT = "BTtoMQTT"


def read_theengs(report: Report) -> Iterable[Sighting]:
    """Theengs Gateway and OpenMQTTGateway: the JSON of Theengs Decoder, one iBeacon per message.

    The MQTT topic names the gateway: <base>/<gateway>/BTtoMQTT/<mac>, or <base>/presence/<gateway>.
    """
    fields = _decode(report.value, type=_Object)
    if str(fields.get("model_id")).upper() != "IBEACON":
        return
    levels = _mqtt_topic(report)
    receiver = levels[levels.index(_TO_MQTT) - 1] if _TO_MQTT in levels[1:] else levels[-1]
    tx_power = "txpower" if "txpower" in fields else "power"  # before 2023
    found = _renamed(
        fields, uuid="uuid", major="major", minor="minor", rssi="rssi", tx_power=tx_power
    )
    yield Sighting(0, _detection(_gateway(receiver), found))


_ESPRESENSE_PREFIX = "ibeacon:"
_ESPRESENSE_ID = re.compile(
    r"(?P<uuid>[0-9a-f-]{32,36})-(?P<major>\d{1,5})-(?P<minor>\d{1,5})", re.ASCII
)


def read_espresense(report: Report) -> Iterable[Sighting]:
    """ESPresense: a node's measurement of one device, which may be an iBeacon.

    The MQTT topic, espresense/devices/<id>/<room>, names the room of the node.
    """
    measured = _decode(report.value, type=_Object)
    id_ = str(measured.get("id")).lower()
    if not id_.startswith(_ESPRESENSE_PREFIX):
        return
    found = _ESPRESENSE_ID.fullmatch(id_, len(_ESPRESENSE_PREFIX))
    if found is None:
        raise ValueError("id: an iBeacon's must be iBeacon:<uuid>-<major>-<minor>")
    fields = found.groupdict() | _renamed(measured, rssi="rssi", tx_power="rssi@1m")
    yield Sighting(0, _detection(_gateway(_mqtt_topic(report)[-1]), fields))


class _Mist(msgspec.Struct, gc=False):
    topic: str
    events: list[_Object]


_MIST_RAW = ("asset-raw-rssi", "discovered-raw-rssi")


def read_mist(report: Report) -> Iterable[Sighting]:
    """Juniper Mist: the webhooks asset-raw-rssi and discovered-raw-rssi, many events a message.

    The receiver is an access point. Webhooks that report a position have none, and no sighting.
    """
    webhook = _decode(report.value, type=_Mist)
    if webhook.topic not in _MIST_RAW:
        return
    for index, event in enumerate(webhook.events):
        if not event.get("ibeacon_uuid"):
            continue  # it is not about an iBeacon
        fields = _renamed(
            event, uuid="ibeacon_uuid", major="ibeacon_major", minor="ibeacon_minor", rssi="rssi"
        )
        message = _detection(_gateway(event.get("device_id")), fields)
        yield Sighting(index, message, _timestamp(event.get("timestamp")))


class _KontaktPacket(msgspec.Struct, gc=False):
    data: str | None = None


class _KontaktEvent(msgspec.Struct, gc=False):
    rssi: float
    timestamp: int | None = None
    data: str | None = None
    ble: _KontaktPacket | None = None


class _Kontakt(msgspec.Struct, gc=False):
    version: int
    source_id: str = msgspec.field(name="sourceId")
    events: list[_KontaktEvent]


_KONTAKT_VERSIONS = (3, 4)
_LATEST_SECONDS = 2**31 - 1  # above it a gateway's timestamp is milliseconds, as in their parser


def read_kontakt(report: Report) -> Iterable[Sighting]:
    """Kontakt.io gateways: events with the bytes of an advertisement, an iBeacon's or another's.

    In version 3 the event has the advertisement, in version 4 its object `ble`.
    """
    upload = _decode(report.value, type=_Kontakt)
    if upload.version not in _KONTAKT_VERSIONS:
        raise ValueError(f"version: {upload.version} must be 3 or 4")
    udid = _gateway(upload.source_id)
    for index, event in enumerate(upload.events):
        packet = event.data if event.ble is None else event.ble.data
        fields = _ibeacon_fields(base64.b64decode(packet or "", validate=True))
        if fields is None:
            continue
        at = event.timestamp
        seconds = None if at is None else at / 1000 if at > _LATEST_SECONDS else float(at)
        message = _detection(udid, fields | {"rssi": event.rssi})
        yield Sighting(index, message, _timestamp(seconds))


class _KioPage(msgspec.Struct, gc=False):
    """An answer of the operation GET /v3/telemetry."""

    content: list[_Object] | None = None


def read_kontakt_cloud(report: Report) -> Iterable[Sighting]:
    """Kontakt.io's cloud (Kio Cloud): its telemetry stream, as Event Hubs and bridges forward it.

    One event, a list of events, or a page of them; an event says that one gateway received one
    beacon. Events of the other streams (position, occupancy, presence) have no sighting.
    """
    found = _decode(report.value, type=_KioPage | list[_Object])
    events = found.content if isinstance(found, _KioPage) else found
    for index, event in enumerate([_decode(report.value)] if events is None else events):
        if not event.get("iBeaconProximity"):
            continue  # it is not about an iBeacon
        fields = _renamed(
            event,
            uuid="iBeaconProximity",
            major="iBeaconMajor",
            minor="iBeaconMinor",
            rssi="rssi",
            tx_power="calibratedRssi1m",
        )
        # `timestamp` is when the cloud received it. Numbers are epoch seconds.
        at = event.get("gatewayTimestamp")
        at = _timestamp(event.get("timestamp") if at is None else at)
        yield Sighting(index, _detection(_gateway(event.get("sourceId")), fields), at)


# What follows owntracks/<user>/<device> in the MQTT topic of each type.
_OWNTRACKS_SUFFIX = {"beacon": ["beacon"], "location": [], "transition": ["event"]}


def read_owntracks(report: Report) -> Iterable[Sighting]:
    """OwnTracks: a phone's position, or a beacon that it ranges, one per message.

    The MQTT topic names the phone. Without an api_key positions have no sighting. Of transitions
    only those into a region have one, because the engine's own geofences decide.
    """
    found = _decode(report.value, type=_Object)
    type_ = str(found.get("_type"))
    if type_ == "beacon":
        names = {name: name for name in ("uuid", "major", "minor", "rssi")}
        fields = _renamed(found, **names, proximity="prox")
    elif type_ in _OWNTRACKS_SUFFIX and (key := report.header_text(_API_KEY)) is not None:
        if type_ == "transition" and found.get("event") != "enter":
            return
        place = _renamed(found, latitude="lat", longitude="lon", accuracy="acc")
        fields = {"position": place, "api_key": key}
    else:
        return
    message = _detection(_owntracks_device(report, type_), fields)
    yield Sighting(0, message, _timestamp(found.get("tst")))


def _owntracks_device(report: Report, type_: str) -> str:
    """<user>/<device> of the MQTT topic, else the whole key."""
    levels, suffix = _mqtt_topic(report), _OWNTRACKS_SUFFIX[type_]
    end = len(levels) - len(suffix)
    if end >= 3 and levels[end:] == suffix:
        levels = levels[end - 2 : end]
    return "/".join(levels)


class _RadarUser(msgspec.Struct, gc=False, rename="camel"):
    device_id: str = ""


class _RadarPoint(msgspec.Struct, gc=False):
    coordinates: tuple[float, float]  # longitude, latitude, as in GeoJSON


class _RadarEntry(msgspec.Struct, gc=False, rename="camel"):
    location: _RadarPoint
    created_at: str
    location_accuracy: float | None = None
    actual_created_at: str | None = None
    user: _RadarUser | None = None


class _Radar(msgspec.Struct, gc=False):
    event: _Object | None = None
    events: list[_Object] = []
    user: _RadarUser | None = None


_RADAR_ENTERED = "user.entered_geofence"


def read_radar(report: Report) -> Iterable[Sighting]:
    """Radar's webhook, one or several events: where a user has entered a geofence of Radar's.

    Events of one update of the location have one sighting, because its position is the same.
    """
    webhook = _decode(report.value, type=_Radar)
    seen = set()
    for index, event in enumerate(webhook.events if webhook.event is None else [webhook.event]):
        if event.get("type") != _RADAR_ENTERED:
            continue
        entry = msgspec.convert(event, _RadarEntry)
        user, key = entry.user or webhook.user, report.header_text(_API_KEY)
        if user is None or not user.device_id:
            raise ValueError("user.deviceId: it is required, and missing")
        if key is None:
            raise ValueError(f"header {_API_KEY}: it is required, and missing")
        at = _timestamp(entry.actual_created_at or entry.created_at)
        longitude, latitude = entry.location.coordinates
        if (user.device_id, latitude, longitude, at) in seen:
            continue
        seen.add((user.device_id, latitude, longitude, at))
        place = {"latitude": latitude, "longitude": longitude, "accuracy": entry.location_accuracy}
        message = _detection(user.device_id, {"position": place, "api_key": key})
        yield Sighting(index, message, at)


# By format, as in the setting DETECTION_TOPICS.
READERS: Mapping[str, ReadReport] = {
    "minew": read_minew,
    "theengs": read_theengs,
    "owntracks": read_owntracks,
    "espresense": read_espresense,
    "radar": read_radar,
    "mist": read_mist,
    "kontakt": read_kontakt,
    "kontakt-cloud": read_kontakt_cloud,
}
