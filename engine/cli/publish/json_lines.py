"""JSON Lines: a detection a line, checked as the engine will check it, published byte for byte."""

import re
from typing import Annotated

import msgspec
from aiokafka import ConsumerRecord
from msgspec import Meta

from engine.cli.publish.item import Item
from engine.kafka.detections import canonical_uuid, decode_record
from engine.kafka.messages import Detection
from engine.kafka.timestamps import parse

_ACCEPTED = (
    "accepted: a JSON object with uuid, major, minor, device.udid, and proximity or rssi; "
    "--as-is publishes any line"
)
_CUT = (
    "the line ends within a detection: JSON Lines has a whole one on each line "
    "(jq -c . FILE writes it so); a file may also be one array, [...]"
)
# How msgspec ends what it says of a field.
_PLACE = re.compile(r"(.*) - at `\$\.([\w.]+)`$")
_LONGEST_SHOWN = 60
# Nothing here asks for the zone that an rssi leads to.
_ANY_EXPONENT = 2.0


class _Device(msgspec.Struct, gc=False):
    udid: Annotated[str, Meta(min_length=1, max_length=255)]


class _Keyed(msgspec.Struct, gc=False):
    device: _Device


_decode = msgspec.json.Decoder(Detection).decode
_decode_key = msgspec.json.Decoder(_Keyed).decode


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
        if self._as_is:
            return Item(_key_of(line), line)
        return json_item(line, recorded=self._recorded)

    def finish(self) -> list[Item]:
        """Any end is a good end, and nothing is left over."""
        return []


def json_item(value: bytes, *, recorded: bool) -> Item:
    """The item of one JSON object. Raises ValueError with what is accepted."""
    try:
        value.decode()  # the decoder does not look into what it skips
        message = _checked(value)
    except msgspec.DecodeError as error:
        told = _CUT if _is_cut(value) else f"{_told(value, error)}; {_ACCEPTED}"
        raise ValueError(told) from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{error}; {_ACCEPTED}") from None
    at = message.detected_at
    if recorded and at is None:
        raise ValueError("detected_at is missing, and its time is needed here")
    when = parse(at) if recorded and at is not None else None
    return Item(message.device.udid.encode(), value, when)


def _told(value: bytes, error: msgspec.DecodeError) -> str:
    """The same with the field in front as somebody wrote it, and what it holds."""
    match = _PLACE.match(str(error))
    try:
        found = msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        match = None  # it is no JSON behind that field
    if match is None:
        return str(error)
    words, path = match.groups()
    for name in path.split("."):
        found = found[name]
    if path == "uuid" and isinstance(found, str):
        words = _of_uuid(found) or words
    return f"{path} {repr(found)[:_LONGEST_SHOWN]}: {words}"


def _of_uuid(text: str) -> str:
    try:
        canonical_uuid(text)
    except ValueError as error:
        return f"not {str(error).partition(' - at ')[0]}"
    return ""


def _is_cut(value: bytes) -> bool:
    """Whether it is the beginning of an object or an array, and no more."""
    try:
        msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError) as error:
        return value.lstrip()[:1] in (b"{", b"[") and "truncated" in str(error)
    return False


def _checked(value: bytes) -> Detection:
    """The detection, if the engine would take it."""
    message = _decode(value)
    if wrong := _of_uuid(message.uuid):
        raise ValueError(f"uuid {message.uuid[:_LONGEST_SHOWN]!r}: {wrong}")
    decode_record(_as_record(value), _ANY_EXPONENT)
    return message


def _as_record(value: bytes) -> "ConsumerRecord[bytes, bytes]":
    return ConsumerRecord(
        topic="",
        partition=0,
        offset=0,
        timestamp=0,
        timestamp_type=0,
        key=None,
        value=value,
        checksum=None,
        serialized_key_size=0,
        serialized_value_size=len(value),
        headers=(),
    )


def _key_of(line: bytes) -> bytes | None:
    try:
        line.decode()
        return _decode_key(line).device.udid.encode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
