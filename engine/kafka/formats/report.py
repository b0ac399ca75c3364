"""What every format has in common: a report comes in, sightings of beacons come out."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from engine.kafka.messages import Detection

MOST_SIGHTINGS = 1000
MQTT_TOPIC = "mqtt.topic"
_LATEST = 253_402_300_799


class Report(NamedTuple):
    """A record as a format reads it; a CloudEvent around it is taken off. `at` is the time of what
    the format dates by nothing better, in epoch seconds."""

    value: bytes
    key: bytes | None
    headers: Sequence[tuple[str, bytes]]
    at: float


class Sighting(NamedTuple):
    """One detection of a report; `position` is its place there, a part of its identity."""

    position: int
    message: Detection


class ReadReport(Protocol):
    """The function `read` of a format's module.

    It raises msgspec.DecodeError (not JSON), RecursionError or ValueError for a report that is
    none. What is not about an iBeacon is no fault, and no sighting.
    """

    def __call__(self, report: Report) -> Iterable[Sighting]: ...


def header(report: Report, name: str) -> str | None:
    """The last header of this name, in any case, as text. Raises ValueError where it is none."""
    found = header_bytes(report, name)
    return None if found is None else _text(found, f"header {name}")


def header_bytes(report: Report, name: str) -> bytes | None:
    """The last header of this name, in any case."""
    found = [value for each, value in report.headers if each.lower() == name]
    return (found[-1] or b"") if found else None


def mqtt_topic(report: Report) -> list[str]:
    """The levels of the MQTT topic behind the record: bridges put it into a header `mqtt.topic`,
    or make it the key. Raises ValueError where there is neither."""
    text = header(report, MQTT_TOPIC)
    if text is None and report.key is not None:
        text = _text(report.key, "key")
    if not text:
        raise ValueError("neither the key nor a header mqtt.topic says who has heard the beacon")
    return text.split("/")


def milliseconds(seconds: float) -> int:
    """Epoch seconds as a detection's time. Raises ValueError."""
    if not 0 <= seconds <= _LATEST:
        raise ValueError("epoch seconds lie between 0 and the end of year 9999")
    return round(seconds * 1000)


def _text(raw: bytes, what: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ValueError(f"the {what} is not UTF-8") from None


def gateway(name: str) -> str:
    """The udid of a gateway: it can be no phone's."""
    if not name:
        raise ValueError("the gateway has no name")
    return f"gateway:{name}"
