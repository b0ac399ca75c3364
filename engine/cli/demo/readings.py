"""The recorded readings, in the form in which an ingestion pipeline would write them."""

import csv
import gzip
from collections.abc import Iterator
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec

from engine.cli.publish.item import Item
from engine.kafka.messages import Detection, ReceivedDevice

# Fits the library (data/README.md): -59 dBm at 1 m, and 27 dB less for each tenfold distance.
PATH_LOSS_EXPONENT = 2.7

_encode = msgspec.json.Encoder().encode


class Readings(NamedTuple):
    """All readings in recorded order, each with its second of the walk; the walks start at once."""

    items: list[Item]
    seconds: float
    phones: int
    beacons: int


def load_readings(document: dict[str, Any]) -> Readings:
    """The readings as detections of the beacons in the demo's catalog `document`."""
    (venue,) = document["companies"][0]["venues"]
    beacons = {str(beacon["minor"]): beacon for beacon in venue["beacons"]}
    items = [_item(row, beacons[row["beacon"]]) for row in _rows()]
    last = items[-1].recorded or 0.0
    return Readings(items, last, len({item.key for item in items}), len(beacons))


def _rows() -> Iterator[dict[str, str]]:
    data = files("engine.cli.demo").joinpath("data/detections.csv.gz").read_bytes()
    return csv.DictReader(gzip.decompress(data).decode().splitlines())


def _item(row: dict[str, str], beacon: dict[str, Any]) -> Item:
    udid = f"{row['phone']}-walk-{row['walk']}"
    detection = Detection(
        uuid=beacon["uuid"],
        major=beacon["major"],
        minor=beacon["minor"],
        rssi=int(row["rssi"]),
        device=ReceivedDevice(udid=udid, name="Android", model=row["phone"]),
    )
    return Item(udid.encode(), _encode(detection), float(row["seconds"]))
