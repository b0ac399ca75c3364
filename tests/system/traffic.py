"""Detections as pipelines write them, and malformed records."""

import json
import math
import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from catalog.models import Beacon, Geofence, ScanTag
from rules.model import Zone
from tests.system.topics import Message
from tests.system.world import World, kind_of

WORDS = {Zone.UNKNOWN: "unknown", Zone.IMMEDIATE: "immediate", Zone.NEAR: "near", Zone.FAR: "far"}
OTHER_PLACES = 0.4  # of the detections, where the world has any

Triple = tuple[str, int, int]


def triple_of(beacon: Beacon) -> Triple:
    """What a detection calls the beacon."""
    return beacon.uuid, beacon.major, beacon.minor


def detection(beacon: Beacon, udid: str, **fields: Any) -> Message:
    """A detection of a beacon by a device; `fields` replace others, such as `proximity`."""
    body = dict(zip(("uuid", "major", "minor"), triple_of(beacon), strict=True))
    body |= {"proximity": "near", "device": {"udid": udid}} | fields
    return Message(udid.encode(), json.dumps(body).encode())


@dataclass
class Case:
    """The meaning of a record. `malformed` is the reason of its dead letter, None for a detection.

    `place` has the fields of another place than a beacon; empty for a beacon.
    `detected_ms` (epoch ms) is None where the record's own timestamp counts.
    """

    triple: Triple = ("", 0, 0)
    place: dict[str, Any] = field(default_factory=dict)
    zone: Zone = Zone.UNKNOWN
    device: dict[str, Any] = field(default_factory=dict)
    detected_ms: int | None = None
    malformed: str | None = None


class Traffic:
    """Makes numbered cases and the messages that carry them."""

    def __init__(self, dice: random.Random, world: World, devices: int) -> None:
        self.cases: list[Case] = []
        self._dice = dice
        self._world = world
        self._known = [triple_of(each) for each in world.beacons]
        self._devices = [_device(dice, number) for number in range(devices)]

    def detection(self, detected_ms: int | None, triple: Triple | None = None) -> Message:
        """A detection of a known beacon, or of `triple`, by one of the devices. Where the world has
        other places, a part of the detections is at them."""
        dice, place = self._dice, {}
        if triple is None and self._world.places and dice.random() < OTHER_PLACES:
            place = self._at(dice.choice(self._world.places))
        case = Case(
            place=place,
            triple=triple or dice.choice(self._known),
            zone=dice.choice((Zone.IMMEDIATE, Zone.IMMEDIATE, Zone.NEAR, *Zone)),
            device=dice.choice(self._devices),
            detected_ms=detected_ms,
        )
        key = str(case.device["udid"]).encode()
        return self._message(case, key, json.dumps(self._body(case)).encode())

    def unknown(self, detected_ms: int | None) -> Message:
        """A detection of a beacon that differs a little from one of the catalog."""
        uuid, major, minor = self._dice.choice(self._known)
        strange = (uuid[:-4] + "0000", major, minor), (uuid, 65_535, minor), (uuid, major, 65_535)
        return self.detection(detected_ms, self._dice.choice(strange))

    def malformed(self) -> Message:
        """A record that has to become a dead letter."""
        reason, value = self._dice.choice(_SPOILT)
        key = self._dice.choice((b"", b"d", "ключ".encode(), b"\xff\x00\x01"))
        return self._message(Case(malformed=reason), key, value)

    def _message(self, case: Case, key: bytes, value: bytes | None) -> Message:
        """Its number is in a header that the engine does not know."""
        self.cases.append(case)
        return Message(key, value, [("case", b"%d" % (len(self.cases) - 1))])

    def _at(self, place: Geofence | ScanTag) -> dict[str, Any]:
        """At the place or close to it; sometimes with an id, text or key of nobody."""
        dice, kind = self._dice, kind_of(place)
        if kind == "geofence" and dice.random() < 0.4:
            id_ = place.id if dice.random() < 0.95 else 10**9 + place.id
            return {"geofence": {"id": id_, "transition": dice.choice(("enter", "dwell", "exit"))}}
        own, company = self._world.keys, place.venue.company
        keys = [key for key in own if own[key] is company]
        sender = {"api_key": dice.choice(keys if dice.random() < 0.9 else self._world.bad_keys)}
        if isinstance(place, Geofence):
            return sender | {"position": _position_at(place, dice)}
        return sender | {
            "tag": {"kind": kind, "value": place.value + dice.choice(("",) * 19 + (" ",))}
        }

    def _body(self, case: Case) -> dict[str, Any]:
        """Spellings are chosen at random; tests of decoding have the rarer ones."""
        dice = self._dice
        uuid, major, minor = case.triple
        body: dict[str, Any] = {
            "uuid": dice.choice((uuid, uuid.upper(), uuid.replace("-", ""))),
            "major": dice.choice((major, str(major))),
            "minor": minor,
            **_nearness(case.zone, dice),
        }
        body = (case.place or body) | {"device": case.device}
        if case.detected_ms is not None:
            body["detected_at"] = _timestamp(case.detected_ms, dice)
        if dice.random() < 0.2:
            body |= {"ip": "192.0.2.1", "battery": [1, {"x": None}], "é": "\ud83d\ude00"}
        items = list(body.items())
        dice.shuffle(items)
        return dict(items)


def _device(dice: random.Random, number: int) -> dict[str, Any]:
    spelling = dice.choice(("phone-{}", "{{{}}}", "手机{}", "\U0001f4f1{}", "'{}\"\\"))
    device: dict[str, Any] = {"udid": spelling.format(number)}
    extra = {
        "name": "iOS",
        "version": "17.1",
        "model": "é",
        "token_push": "t" * 64,
        "id_connector": 2**40 + number,
        "time_zone": dice.choice(("Europe/London", "Asia/Tokyo", "America/Lima")),
    }
    return device | {name: value for name, value in extra.items() if dice.random() < 0.5}


def _position_at(geofence: Geofence, dice: random.Random) -> dict[str, Any]:
    """Inside for four of ten, some of them with an accuracy that is too bad."""
    spread = geofence.radius / 111_195
    latitude = max(-90.0, min(90.0, geofence.latitude + dice.gauss(0, spread)))
    width = max(math.cos(math.radians(latitude)), 1e-9)
    longitude = (geofence.longitude + dice.gauss(0, spread) / width + 180) % 360 - 180
    accuracy = dice.choice((None, 0, 5, 99.5, 100, 101, 2000, 5000))
    position = {"latitude": latitude, "longitude": longitude}
    return position if accuracy is None else position | {"accuracy": accuracy}


def _nearness(zone: Zone, dice: random.Random) -> dict[str, Any]:
    """A word or number for it, or an rssi whose distance is below 0.5 m, up to 4 m, or beyond."""
    if zone is not Zone.UNKNOWN and dice.random() < 0.3:
        losses = {Zone.IMMEDIATE: (-20, -7), Zone.NEAR: (-6, 12), Zone.FAR: (13, 30)}
        return {"tx_power": -65, "rssi": -65 - dice.randint(*losses[zone])}
    return {"proximity": dice.choice((WORDS[zone], f"Proximity{WORDS[zone]}", zone.value))}


def _timestamp(ms: int, dice: random.Random) -> object:
    zone = timezone(timedelta(minutes=dice.choice((0, 330, -210))))
    written = datetime.fromtimestamp(ms // 1000, zone).isoformat()
    fraction = written[:19] + f".{ms % 1000:03}" + written[19:]
    return dice.choice((ms, fraction if ms % 1000 else written))


_HERE = {"device": {"udid": "d"}, "position": {"latitude": 1, "longitude": 2}, "api_key": "k"}
# Some kinds; tests of decoding have them all.
_SPOILT: list[tuple[str, bytes | None]] = [
    ("malformed_json", None),
    ("malformed_json", json.dumps(_HERE).encode()[:-1]),
    ("malformed_json", json.dumps(_HERE).encode().replace(b'"d"', b'"\xff\xfe"')),
    ("malformed_json", b'{"x": ' + b"[" * 5000 + b"]" * 5000 + b"}"),
    ("invalid_field", b"[]"),
    ("invalid_field", json.dumps(_HERE | {"device": {"udid": "x" * 256}}).encode()),
    ("invalid_field", json.dumps(_HERE | {"uuid": "f7826da6", "major": 65_536}).encode()),
    ("invalid_field", json.dumps(_HERE | {"detected_at": "2026-13-20T10:00:00Z"}).encode()),
]
