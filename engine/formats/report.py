"""The types common to all formats: a format reads a report and yields sightings."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from engine.kafka.messages import ApiKey, Coordinates, Detection, ReceivedDevice, parse_text

MOST_SIGHTINGS = 1000
MQTT_TOPIC = "mqtt.topic"
API_KEY = "api_key"
_LATEST = 253_402_300_799


class Report(NamedTuple):
    """A record as a format reads it, without a CloudEvent's envelope.

    `at`, in epoch seconds, is the time of sightings that have no time of their own.
    """

    value: bytes
    key: bytes | None
    headers: Sequence[tuple[str, bytes]]
    at: float


class Sighting(NamedTuple):
    """One detection of a report. Its `position` in the report is a part of its identity.

    `at`, in epoch seconds, is its time, if the message itself has none.
    """

    position: int
    message: Detection
    at: float | None = None


# Reads the sightings in a report of one format. Raises msgspec.DecodeError (not JSON),
# RecursionError or ValueError for an invalid report. A message about neither an iBeacon nor a
# position is valid and has no sighting.
ReadReport = Callable[[Report], Iterable[Sighting]]


def header(report: Report, name: str) -> str | None:
    """The last header of this name, in any letter case, as text. Raises ValueError if it is not
    UTF-8."""
    found = header_bytes(report, name)
    return None if found is None else _text(found, f"header {name}")


def header_bytes(report: Report, name: str) -> bytes | None:
    """The last header of this name, in any letter case."""
    found = [value for each, value in report.headers if each.lower() == name]
    return (found[-1] or b"") if found else None


def mqtt_topic(report: Report) -> list[str]:
    """The levels of the MQTT topic of a report.

    MQTT bridges put the topic into a header `mqtt.topic` or into the key. Raises ValueError if
    there is neither.
    """
    text = header(report, MQTT_TOPIC)
    if text is None and report.key is not None:
        text = _text(report.key, "key")
    if not text:
        raise ValueError("neither the key nor a header mqtt.topic names the receiver")
    return text.split("/")


def api_key(report: Report) -> str | None:
    """The key of the application that sends, from the header `api_key`. Raises ValueError."""
    found = header(report, API_KEY)
    return None if found is None else msgspec.convert(found, ApiKey)


def position(latitude: float, longitude: float, accuracy: float | None) -> Coordinates:
    """A position. Raises ValueError for numbers that are none."""
    fields = {"latitude": latitude, "longitude": longitude, "accuracy": accuracy}
    return msgspec.convert(fields, Coordinates)


def timestamp(written: str | float | None) -> float | None:
    """Epoch seconds of a text or of a number of epoch seconds, to the millisecond. Raises
    ValueError."""
    if not isinstance(written, float):
        return None if written is None else parse_text(written)
    if not 0 <= written <= _LATEST:
        raise ValueError("epoch seconds must be between 0 and the end of year 9999")
    return round(written * 1000) / 1000


def gateway(name: str) -> ReceivedDevice:
    """A gateway as the device of a detection; the prefix keeps its udid apart from phones'."""
    if not name:
        raise ValueError("the gateway has no name")
    return ReceivedDevice(udid=f"gateway:{name}")


def _text(raw: bytes, what: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ValueError(f"the {what} is not UTF-8") from None
