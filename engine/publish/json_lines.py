"""JSON Lines: a detection a line, published byte for byte."""

from typing import Annotated

import msgspec
from msgspec import Meta

from engine.messages import Timestamp
from engine.publish.item import Item
from engine.timestamps import parse

_ACCEPTED = (
    'accepted: a JSON object with {"device": {"udid": string of 1 to 255 characters}}; '
    "--as-is publishes any line"
)


class _Device(msgspec.Struct, gc=False):
    udid: Annotated[str, Meta(min_length=1, max_length=255)]


class _Line(msgspec.Struct, gc=False):
    device: _Device
    detected_at: Timestamp | None = None


class _Keyed(msgspec.Struct, gc=False):
    device: _Device


_decode_key = msgspec.json.Decoder(_Keyed).decode
_decode_time = msgspec.json.Decoder(_Line).decode


class JsonLines:
    """Takes each line as it is; blank lines are no detections.

    `recorded` asks for the time in detected_at, which every line must then have. With `as_is` a
    line may be anything: one without a udid goes out without a key, as a pipeline's would.
    """

    def __init__(self, *, recorded: bool = False, as_is: bool = False) -> None:
        self._recorded = recorded
        self._as_is = as_is

    def read(self, line: bytes) -> Item | None:
        """The item of a line. Raises ValueError."""
        if not line.strip():
            return None
        try:
            line.decode()  # the decoder does not look into what it skips
            key = _decode_key(line).device.udid.encode()
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if self._as_is:
                return Item(None, line)
            raise ValueError(f"{error}; {_ACCEPTED}") from None
        return Item(key, line, self._time(line) if self._recorded else None)

    def finish(self) -> None:
        """Any end is a good end."""

    @staticmethod
    def _time(line: bytes) -> float:
        try:
            detected_at = _decode_time(line).detected_at
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ValueError(str(error)) from None
        if detected_at is None:
            raise ValueError("detected_at is missing, and --speed goes by it")
        return parse(detected_at)
