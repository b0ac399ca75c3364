"""Reads JSON Lines (a detection a line) or one JSON array of detections.

Each detection is checked with the engine's own checks, and published byte for byte.
"""

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import msgspec
from aiokafka import ConsumerRecord
from msgspec import Meta

from engine.cli.publish.item import Item, LineReader, PlacedError
from engine.kafka.detections import canonical_uuid, decode_record
from engine.kafka.messages import Detection
from engine.kafka.timestamps import parse
from rules.proximity import parse_zone

_ACCEPTED = (
    "accepted: a JSON object with uuid, major, minor, device.udid, and proximity or rssi; "
    "--as-is publishes any line"
)
_CUT = (
    "the line ends within a detection: JSON Lines has a whole one on each line "
    "(jq -c . FILE writes it so); a file may also be one array, [...]"
)
# The end of msgspec's messages about a field.
_PLACE = re.compile(r"(.*) - at `\$\.([\w.]+)`$")
_LONGEST_SHOWN = 60
_HIGHEST = 65535
_LARGEST_ARRAY = 64 * 1024 * 1024
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# The zone that follows from an rssi is not used here.
_ANY_EXPONENT = 2.0


class _Device(msgspec.Struct, gc=False):
    udid: Annotated[str, Meta(min_length=1, max_length=255)]


class _Keyed(msgspec.Struct, gc=False):
    device: _Device


_decode = msgspec.json.Decoder(Detection).decode
_decode_key = msgspec.json.Decoder(_Keyed).decode
_decode_array = msgspec.json.Decoder(list[msgspec.Raw]).decode


class JsonLines:
    """Reads one detection per line; blank lines are skipped.

    With `recorded` every detection must have detected_at. With `as_is` a line may be anything; a
    line without a udid is published without a key, as a pipeline would do it.
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
        """No further items: `read` has returned the item of every line."""
        return []


class JsonArray:
    """Keeps every line until the end, at most 64 MiB in all, and reads the array then."""

    def __init__(self, *, recorded: bool = False) -> None:
        self._recorded = recorded
        self._lines: list[bytes] = []
        self._bytes = 0

    def read(self, line: bytes) -> Item | None:
        """None: items come from `finish`. Raises ValueError when the array is too large."""
        self._lines.append(line)
        self._bytes += len(line) + 1
        if self._bytes > _LARGEST_ARRAY:
            raise ValueError(
                f"a JSON array is read whole, up to {_LARGEST_ARRAY >> 20} MiB; what is more goes "
                "as JSON Lines (jq -c .[] FILE writes it so)"
            )
        return None

    def finish(self) -> Sequence[Item]:
        """The items of the whole array. Raises PlacedError for the first faulty one."""
        whole = b"\n".join(self._lines)
        try:
            parts = _decode_array(whole)
        except (msgspec.DecodeError, RecursionError) as error:
            raise PlacedError(1, f"no JSON array of detections: {error}") from None
        items, at = [], 0
        for part in parts:
            value = bytes(part)
            at = whole.index(value, at)
            try:
                items.append(json_item(value, recorded=self._recorded))
            except ValueError as error:
                raise PlacedError(1 + whole.count(b"\n", 0, at), str(error)) from None
            at += len(value)
        return items


class JsonInput:
    """JSON Lines or one array: the first line that is not blank decides which."""

    def __init__(self, *, recorded: bool = False) -> None:
        self._recorded = recorded
        self._before: list[bytes] = []
        self._reader: LineReader | None = None

    def read(self, line: bytes) -> Item | None:
        """The item of a line, by the reader that was chosen. Raises ValueError."""
        if self._reader is not None:
            return self._reader.read(line)
        if not self._before:
            line = line.removeprefix(_BYTE_ORDER_MARK)
        if not line.strip():
            self._before.append(line)
            return None
        self._reader = self._chosen(line)
        return self._reader.read(line)

    def finish(self) -> Sequence[Item]:
        """The items that the chosen reader kept. Raises ValueError."""
        return [] if self._reader is None else self._reader.finish()

    def _chosen(self, line: bytes) -> LineReader:
        if not line.lstrip().startswith(b"["):
            return JsonLines(recorded=self._recorded)
        array = JsonArray(recorded=self._recorded)
        for blank in self._before:  # so that line numbers stay right
            array.read(blank)
        return array


def json_item(value: bytes, *, recorded: bool) -> Item:
    """The item of one JSON object. Raises ValueError with what is accepted."""
    try:
        _check_text(value)  # the decoder does not check fields that it skips
        message = _checked(value)
    except msgspec.DecodeError as error:
        if _is_truncated(value):
            raise ValueError(_CUT) from None
        raise ValueError(f"{_with_field_in_front(value, error)}; {_ACCEPTED}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{error}; {_ACCEPTED}") from None
    at = message.detected_at
    if recorded and at is None:
        raise ValueError("detected_at is missing, and its time is needed here")
    when = parse(at) if recorded and at is not None else None
    return Item(message.device.udid.encode(), value, when)


def _with_field_in_front(value: bytes, error: msgspec.DecodeError) -> str:
    """The message, which begins with the field and the user's value."""
    match = _PLACE.match(str(error))
    try:
        found = msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        match = None  # the rest of the line is not JSON
    if match is None:
        return str(error)
    words, path = match.groups()
    for name in path.split("."):
        found = found[name]
    if path == "uuid" and isinstance(found, str):
        words = _uuid_fault(found) or words
    if path in ("major", "minor"):
        words = f"not a whole number from 0 to {_HIGHEST}"
    return f"{path} {repr(found)[:_LONGEST_SHOWN]}: {words}"


def _uuid_fault(text: str) -> str:
    """What is wrong with the text as a uuid; empty if nothing is."""
    try:
        canonical_uuid(text)
    except ValueError as error:
        return f"not {str(error).partition(' - at ')[0]}"
    return ""


def _check_text(value: bytes) -> None:
    try:
        value.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 (byte {error.start + 1} of the line)") from None


def _is_truncated(value: bytes) -> bool:
    """Whether the line ends within an object or an array."""
    try:
        msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError) as error:
        return value.lstrip()[:1] in (b"{", b"[") and "truncated" in str(error)
    return False


def _checked(value: bytes) -> Detection:
    """The detection, if the engine would take it."""
    message = _decode(value)
    if fault := _uuid_fault(message.uuid):
        raise ValueError(f"uuid {message.uuid[:_LONGEST_SHOWN]!r}: {fault}")
    try:
        decode_record(_as_record(value), _ANY_EXPONENT)
    except ValueError as error:
        raise ValueError(f"{_field_at_fault(message)}{error}") from None
    return message


def _field_at_fault(message: Detection) -> str:
    """Name and value of the field at fault, if it is one whose form its type does not check."""
    checks: tuple[tuple[str, Any, Callable[[Any], object]], ...] = (
        ("proximity", message.proximity, parse_zone),
        ("detected_at", message.detected_at, parse),
    )
    for name, given, check in checks:
        try:
            if given is not None:
                check(given)
        except ValueError:
            return f"{name} {repr(given)[:_LONGEST_SHOWN]}: "
    return ""


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
