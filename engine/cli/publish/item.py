"""One detection on its way to the topic, and what every reader of a file answers to."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


class Item(NamedTuple):
    """A message: the device's udid as the key, the value, and when it was recorded (epoch s),
    which only a replay at recorded pace asks for."""

    key: bytes | None
    value: bytes
    recorded: float | None = None


class LineReader(Protocol):
    """Reads a line at a time. Raises ValueError with what is accepted."""

    def read(self, line: bytes) -> Item | None:
        """The item of a line; None for a line that carries none (blank, the header)."""

    def finish(self) -> Sequence[Item]:
        """The input ended here: the items that waited for that. Raises ValueError when it is too
        early, PlacedError for a fault in an earlier line."""


class PlacedError(ValueError):
    """A fault in line `number` (from 1), found later."""

    def __init__(self, number: int, told: str) -> None:
        super().__init__(told)
        self.number = number


def stamped(value: bytes, epoch: float) -> bytes:
    """The same JSON object with `detected_at` set to `epoch`, in milliseconds; every other field
    byte for byte."""
    fields = _decode(value)
    fields["detected_at"] = msgspec.Raw(b"%d" % round(epoch * 1000))
    return _encode(fields)
