"""A detection to publish, and the interface of the readers of files."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


class Item(NamedTuple):
    """A message to publish.

    `key` is the device's udid. `recorded` (epoch s) is the time of the detection, for a replay at
    the recorded pace.
    """

    key: bytes | None
    value: bytes
    recorded: float | None = None


class LineReader(Protocol):
    """Reads a line at a time. Raises ValueError with what is accepted."""

    def read(self, line: bytes) -> Item | None:
        """The item of a line; None for a line without an item (a blank line, the header)."""

    def finish(self) -> Sequence[Item]:
        """The items that waited for the end of the input.

        Raises ValueError if the input is incomplete, PlacedError for a fault in an earlier line.
        """


class PlacedError(ValueError):
    """A fault in line `number` (from 1) that was found at the end of the input."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number


def stamped(value: bytes, epoch: float) -> bytes:
    """The JSON object with `detected_at` set to `epoch`, in milliseconds.

    Every other field stays as it is, byte for byte.
    """
    fields = _decode(value)
    fields["detected_at"] = msgspec.Raw(b"%d" % round(epoch * 1000))
    return _encode(fields)
