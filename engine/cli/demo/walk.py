"""The demo's data: its catalog, the readings of the library, and a customer's service."""

import csv
import gzip
import json
import zlib
from datetime import datetime, timedelta
from importlib.resources import files
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse

from catalog.models import WEEKDAYS
from engine.cli.publish import Item
from engine.kafka.messages import Detection, ReceivedDevice

ZONE = ZoneInfo("Europe/Madrid")
# Fits the library (data/README.md): -59 dBm at 1 m, and 27 dB less for each tenfold distance.
PATH_LOSS_EXPONENT = 2.7
_BOOKS = ("Don Quijote", "La Regenta", "Tirant lo Blanc", "Middlemarch", "Hopscotch")
_UUID = "b5c4a7e0-6f0d-4c8e-9d5a-2c1f7a9e4b10"
# Entrance, study desk, lending desk: a template, html, and content from the customer's service.
_WAY = ((44, "far"), (23, "near"), (45, "immediate"))


def demo_document(
    now: datetime,
    *,
    connector: str = "https://library.example/loans",
    password: str = "of no account",  # noqa: S107
) -> dict[str, Any]:
    """The catalog's document for a demo that runs at `now` (aware).

    `connector` is the url of the customer's service, `password` that of the account.
    """
    text = files("engine.cli.demo").joinpath("data/catalog.json").read_text(encoding="utf-8")
    local = now.astimezone(ZONE)
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
    days = {"a_month_ago": -30, "last_week": -7, "next_week": 7, "in_a_month": 30}
    values = {
        "connector": connector,
        "password": password,
        **{name: f"{midnight + timedelta(days=n):%Y-%m-%dT%H:%M:%S%z}" for name, n in days.items()},
        "in_two_hours": f"{local + timedelta(hours=2):%H:%M}",
        "in_four_hours": f"{local + timedelta(hours=4):%H:%M}",
    }
    # Every weekday but today and tomorrow: the demo may run over midnight.
    near = {local.weekday(), (local.weekday() + 1) % 7}
    values |= {day: str(number not in near) for number, day in enumerate(WEEKDAYS)}
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    document: dict[str, Any] = json.loads(text)
    return document


def load_readings(document: dict[str, Any]) -> list[Item]:
    """The readings in recorded order, as detections of the beacons in the demo's `document`.

    Each has the second of its walk as its time; all walks start at once.
    """
    (venue,) = document["companies"][0]["venues"]
    beacons = {str(beacon["minor"]): beacon for beacon in venue["beacons"]}
    data = files("engine.cli.demo").joinpath("data/detections.csv.gz").read_bytes()
    items = []
    for row in csv.DictReader(gzip.decompress(data).decode().splitlines()):
        udid, beacon = f"{row['phone']}-walk-{row['walk']}", beacons[row["beacon"]]
        detection = Detection(
            uuid=beacon["uuid"],
            major=beacon["major"],
            minor=beacon["minor"],
            rssi=int(row["rssi"]),
            device=ReceivedDevice(udid=udid, name="Android", model=row["phone"]),
        )
        items.append(Item(udid.encode(), msgspec.json.encode(detection), float(row["seconds"])))
    return items


def load_arrivals(document: dict[str, Any], readings: list[Item]) -> list[Item]:
    """A position on the square and a scan of the QR code at the door, of each phone of `readings`.

    They are made up; all come before the walks.
    """
    return [
        Item(key, msgspec.json.encode(signal | {"device": {"udid": key.decode()}}), 0.0)
        for key in sorted({item.key for item in readings})
        for signal in _arrival(document)
    ]


def your_walk(document: dict[str, Any]) -> bytes:
    """Detections of a visitor, as JSON Lines for `publish`."""
    device = {"udid": "you", "name": "Android"}
    place = {"uuid": _UUID, "major": 1, "device": device}
    way = [signal | {"device": device} for signal in _arrival(document)]
    way += ({**place, "minor": minor, "proximity": proximity} for minor, proximity in _WAY)
    return b"".join(msgspec.json.encode(each) + b"\n" for each in way)


def _arrival(document: dict[str, Any]) -> list[dict[str, Any]]:
    """A position and a scan, without a device."""
    (company,) = document["companies"]
    (venue,), (application,) = company["venues"], company["applications"]
    (square,), (code,) = venue["geofences"], venue["qrcodes"]
    position = {name: square[name] for name in ("latitude", "longitude")} | {"accuracy": 15.0}
    key = {"api_key": application["api_key"]}
    return [
        {"position": position} | key,
        {"tag": {"kind": "qrcode", "value": code["value"]}} | key,
    ]


async def answer_call(scope: Any, receive: Any, send: Any) -> None:
    """The library's computer, an ASGI application that the connector role calls.

    Answers with the book that the reader has on loan; the same for the same device.
    """
    call = await Request(scope, receive).json()
    udid = call["device"]["udid"].encode()
    push = f"{_BOOKS[zlib.crc32(udid) % len(_BOOKS)]} is due tomorrow."
    content = {"format": "html", "html": f"<p>{push}</p>"}
    await JSONResponse({"title": "Your loans", "push": push} | content)(scope, receive, send)
