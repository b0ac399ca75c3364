"""Detections as pipelines write them: every accepted spelling, and malformed records."""

import json
import math
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
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
        dice = self._dice
        uuid, major, minor = case.triple
        spell = dice.choice((str, str.upper, str.title))
        body: dict[str, Any] = {
            "uuid": spell(uuid if dice.random() < 0.6 else uuid.replace("-", "")),
            "major": _number(major, dice),
            "minor": _number(minor, dice),
            **_nearness(case.zone, dice),
        }
        body = (case.place or body) | {"device": case.device}
        if case.detected_ms is not None:
            body["detected_at"] = _timestamp(case.detected_ms, dice)
        elif dice.random() < 0.5:
            body["detected_at"] = None
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


def _number(value: int, dice: random.Random) -> object:
    return dice.choice((value, value, value, str(value), f"{value:05}", f" {value} "))


def _nearness(zone: Zone, dice: random.Random) -> dict[str, Any]:
    if zone is not Zone.UNKNOWN and dice.random() < 0.3:
        return _signal(zone, dice)
    word = WORDS[zone]
    spellings = (word, word.upper(), word.title(), f"Proximity{word.title()}", f"proximity{word}")
    record: dict[str, Any] = {"proximity": dice.choice((*spellings, zone.value, str(zone.value)))}
    if dice.random() < 0.2:  # an explicit proximity wins
        record["rssi"] = dice.choice((-30, -65, -90, 0))
    return record


def _signal(zone: Zone, dice: random.Random) -> dict[str, Any]:
    """An rssi whose distance is in the zone: below 0.5 m, up to 4 m, or beyond."""
    power = dice.choice((None, -59, -65, -70))
    reference = DEFAULT_TX if power is None else power
    losses = {Zone.IMMEDIATE: (-20, -7), Zone.NEAR: (-6, 12), Zone.FAR: (13, 30)}
    signal: dict[str, Any] = {"rssi": reference - dice.randint(*losses[zone])}
    if power is not None:
        signal["tx_power"] = power
    return signal if dice.random() < 0.8 else signal | {"proximity": None}


def _timestamp(ms: int, dice: random.Random) -> object:
    if ms % 1000 or dice.random() < 0.2:
        return dice.choice((ms, _written(ms, dice, fraction=f".{ms % 1000:03}")))
    return _written(ms, dice, fraction="")


def _written(ms: int, dice: random.Random, fraction: str) -> str:
    minutes = dice.choice((0, 60, 330, -210, 765))
    sign, (hours, rest) = "-" if minutes < 0 else "+", divmod(abs(minutes), 60)
    colon = dice.choice(("", ":"))
    offset = f"{sign}{hours:02}{colon}{rest:02}"
    if minutes == 0:
        offset = dice.choice((offset, "Z", "z", f"-00{colon}00"))
    local = datetime.fromtimestamp(ms // 1000, UTC).astimezone(timezone(timedelta(minutes=minutes)))
    return local.strftime(f"%Y-%m-%d{dice.choice('Tt ')}%H:%M:%S") + fraction + offset


def _spoilt(body: dict[str, Any]) -> list[tuple[str, bytes | None]]:
    """Reasons and values, one for each kind of malformed record."""
    whole = json.dumps(body).encode()
    not_json: list[bytes | None] = [
        None,
        b"",
        b"no json",
        whole[:-1],
        whole + b"}",
        b"\xef\xbb\xbf" + whole,
        whole.replace(b'"d"', b'"\xff\xfe"'),
        whole.replace(b'"d"', b'"\\ud800"'),
        whole.replace(b"near", b"ne\x00ar"),
        whole[:-1] + b', "rssi": NaN}',
        whole[:-1] + b', "x": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        json.dumps(body).encode("utf-16"),
    ]
    without = [{k: v for k, v in body.items() if k != name} for name in body]
    changes: list[dict[str, Any]] = [
        {"uuid": "f7826da6-4fa2-4e98-8024-bc5b71e0893"},
        {"uuid": "f7826da64fa2-4e98-8024-bc5b71e0893e"},
        {"uuid": "g7826da6-4fa2-4e98-8024-bc5b71e0893e"},
        {"uuid": 5},
        {"major": 65_536},
        {"major": -1},
        {"minor": "65536"},
        {"minor": "1x"},
        {"minor": "٣"},
        {"minor": ""},
        {"minor": 1.5},
        {"major": True},
        {"device": {}},
        {"device": {"udid": ""}},
        {"device": {"udid": "x" * 256}},
        {"device": {"udid": "a\0b"}},
        {"device": {"udid": 7}},
        {"device": {"udid": "d", "id_connector": "x"}},
        {"device": []},
        {"proximity": "close"},
        {"proximity": "Proximity"},
        {"proximity": 4},
        {"proximity": -1},
        {"proximity": True},
        {"proximity": None},
        {"proximity": None, "rssi": "-60"},
        {"detected_at": "yesterday"},
        {"detected_at": "2026-11-20T10:00:00"},
        {"detected_at": "2026-11-20"},
        {"detected_at": "2026-13-20T10:00:00Z"},
        {"detected_at": "2026-11-20T24:00:00Z"},
        {"detected_at": -1},
        {"detected_at": 10**18},
        {"detected_at": 10**40},
        {"detected_at": 1.5e12},
    ]
    wrong = [json.dumps(each).encode() for each in (*without, *(body | c for c in changes))]
    wrong += [b"[]", b"null", b'"text"', b"17"]
    here, scan = {"latitude": 1, "longitude": 2}, {"kind": "nfc", "value": "a"}
    places: list[dict[str, Any]] = [
        body | {"position": here, "api_key": "k"},
        body | {"geofence": {"id": 1, "transition": "enter"}},
        {"position": here, "tag": scan, "api_key": "k"},
        {"position": here},
        {"tag": scan},
        {"position": here | {"latitude": 91}, "api_key": "k"},
        {"position": here | {"longitude": -180.5}, "api_key": "k"},
        {"position": here | {"accuracy": -5}, "api_key": "k"},
        {"position": {"latitude": 1}, "api_key": "k"},
        {"position": here, "api_key": ""},
        {"tag": scan | {"value": "x" * 2048}, "api_key": "k"},
        {"tag": scan | {"value": "é" * 600}, "api_key": "k"},
        {"tag": scan | {"value": ""}, "api_key": "k"},
        {"tag": scan | {"kind": "rfid"}, "api_key": "k"},
        {"geofence": {"id": 1}},
        {"geofence": {"id": 0, "transition": "enter"}},
        {"geofence": {"id": 1, "transition": "leave"}},
    ]
    wrong += [json.dumps({"device": {"udid": "d"}} | each).encode() for each in places]
    not_json.append(json.dumps(places[5] | {"position": here | {"latitude": math.nan}}).encode())
    return [("malformed_json", value) for value in not_json] + [
        ("invalid_field", value) for value in wrong
    ]
