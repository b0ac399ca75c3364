"""Detections as pipelines write them, and malformed records."""

import json
import math
import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

from rules.model import Zone
from tests.system.world import PlacePlan, Triple, World

WORDS = {Zone.UNKNOWN: "unknown", Zone.IMMEDIATE: "immediate", Zone.NEAR: "near", Zone.FAR: "far"}
DEFAULT_TX = -59
OTHER_PLACES = 0.4  # of the detections, where the world has any


class Message(NamedTuple):
    """A record to publish. `case` numbers it, in a header that the engine does not know."""

    case: int
    key: bytes | None
    value: bytes | None


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
        self._known = [plan.triple for plan in world.beacons]
        self._devices = [_device(dice, number) for number in range(devices)]

    def detection(self, detected_ms: int | None, triple: Triple | None = None) -> Message:
        """A detection of a known beacon, or of `triple`, by one of the devices. Where the world has
        other places, a part of the detections is at them."""
        place: dict[str, Any] = {}
        if triple is None and self._world.places and self._dice.random() < OTHER_PLACES:
            place = self._other_place(self._dice.choice(self._world.places))
        case = Case(
            place=place,
            triple=triple or self._dice.choice(self._known),
            zone=self._dice.choice((Zone.IMMEDIATE, Zone.IMMEDIATE, Zone.NEAR, *Zone)),
            device=self._dice.choice(self._devices),
            detected_ms=detected_ms,
        )
        return self._message(case, json.dumps(self._body(case)).encode())

    def unknown(self, detected_ms: int | None) -> Message:
        """A detection of a beacon that differs a little from one of the catalog."""
        uuid, major, minor = self._dice.choice(self._known)
        strange = (uuid[:-4] + "0000", major, minor), (uuid, 65_535, minor), (uuid, major, 65_535)
        return self.detection(detected_ms, self._dice.choice(strange))

    def _other_place(self, plan: PlacePlan) -> dict[str, Any]:
        """At the place or close to it; sometimes with an id, text or key of nobody."""
        dice, record = self._dice, plan.record
        if plan.kind == "geofence" and dice.random() < 0.4:
            id_ = record.id if dice.random() < 0.95 else 10**9 + record.id
            return {"geofence": {"id": id_, "transition": dice.choice(("enter", "dwell", "exit"))}}
        keys = [key for key, company in self._world.keys.items() if company is plan.venue.company]
        sender = {"api_key": dice.choice(keys if dice.random() < 0.9 else self._world.bad_keys)}
        if plan.kind == "geofence":
            return sender | {"position": _position_at(record, dice)}
        value = record.value + dice.choice(("",) * 19 + (" ",))
        return sender | {"tag": {"kind": plan.kind, "value": value}}

    def malformed(self) -> Message:
        """A record that has to become a dead letter."""
        case = Case(triple=self._known[0], zone=Zone.NEAR, device={"udid": "d"}, detected_ms=None)
        body = {"uuid": self._known[0][0], "major": 1, "minor": 1, "proximity": "near"}
        body["device"] = {"udid": "d"}
        case.malformed, value = self._dice.choice(_spoilt(body))
        key = self._dice.choice((None, b"", b"d", "ключ".encode(), b"\xff\x00\x01"))
        return self._message(case, value, b"d" if value is None else key)

    def _message(self, case: Case, value: bytes | None, key: bytes | None = None) -> Message:
        self.cases.append(case)
        if case.malformed is None:
            key = str(case.device["udid"]).encode()
        return Message(len(self.cases) - 1, key, value)

    def _body(self, case: Case) -> dict[str, Any]:
        """Spellings are chosen at random; tests of decoding have the rarer ones."""
        dice = self._dice
        uuid, major, minor = case.triple
        body: dict[str, Any] = {
            "uuid": dice.choice((uuid, uuid.upper(), uuid.replace("-", ""))),
            "major": dice.choice((major, str(major))),
            "minor": dice.choice((minor, f" {minor:05} ")),
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
    spelling = dice.choice(("phone-{}", "{{{}}}", "a b {}", "手机{}", "\U0001f4f1{}", "'{}\"\\"))
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


def _position_at(geofence: Any, dice: random.Random) -> dict[str, Any]:
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
        power = dice.choice((DEFAULT_TX, -65))
        signal = {"rssi": power - dice.randint(*losses[zone])}
        return signal if power == DEFAULT_TX else signal | {"tx_power": power}
    word = WORDS[zone]
    record: dict[str, Any] = {"proximity": dice.choice((word, f"Proximity{word}", zone.value))}
    if dice.random() < 0.2:  # an explicit proximity wins
        record["rssi"] = dice.choice((-30, -65, -90, 0))
    return record


def _timestamp(ms: int, dice: random.Random) -> object:
    minutes = dice.choice((0, 60, 330, -210, 765))
    zone = timezone(timedelta(minutes=minutes))
    written = datetime.fromtimestamp(ms // 1000, zone).isoformat()
    fraction = written[:19] + f".{ms % 1000:03}" + written[19:]
    return dice.choice((ms, fraction if ms % 1000 else written))


def _spoilt(body: dict[str, Any]) -> list[tuple[str, bytes | None]]:
    """Reasons and values of some kinds of malformed records; tests of decoding have them all."""
    whole = json.dumps(body).encode()
    not_json: list[bytes | None] = [
        None,
        b"",
        whole[:-1],
        whole.replace(b'"d"', b'"\xff\xfe"'),
        whole[:-1] + b', "rssi": NaN}',
        whole[:-1] + b', "x": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    ]
    here, scan = {"latitude": 1, "longitude": 2}, {"kind": "nfc", "value": "a"}
    device = {"device": {"udid": "d"}}
    wrong: list[Any] = [
        [],
        {name: value for name, value in body.items() if name != "uuid"},
        body | {"uuid": 5},
        body | {"major": 65_536},
        body | {"minor": "1x"},
        body | {"device": {"udid": "x" * 256}},
        body | {"proximity": "close"},
        body | {"detected_at": "2026-13-20T10:00:00Z"},
        body | {"position": here, "api_key": "k"},
        device | {"position": here},
        device | {"position": here | {"latitude": 91}, "api_key": "k"},
        device | {"tag": scan | {"value": "x" * 2048}, "api_key": "k"},
        device | {"geofence": {"id": 1, "transition": "leave"}},
    ]
    return [("malformed_json", value) for value in not_json] + [
        ("invalid_field", json.dumps(value).encode()) for value in wrong
    ]
