"""The types common to all formats: a format reads a report and yields sightings."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from engine.kafka.messages import Detection


class Report(NamedTuple):
    """A record as a format reads it, without a CloudEvent's envelope.

    `at`, in epoch seconds, is the time of sightings that have no time of their own.
    """

    value: bytes
    key: bytes | None
    headers: Sequence[tuple[str, bytes]]
    at: float

    def header_text(self, name: str) -> str | None:
        """The last header of this name, in any case. Raises ValueError if it is not UTF-8."""
        found = [value for each, value in self.headers if each.lower() == name]
        return utf8(found[-1] or b"", f"header {name}") if found else None


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


def utf8(raw: bytes, what: str) -> str:
    """The text of these bytes. Raises ValueError."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ValueError(f"the {what} is not UTF-8") from None
