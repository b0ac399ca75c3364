"""Reads a file of detections: JSON Lines, one JSON array, or CSV, from a file or a pipe.

Each detection becomes the JSON of one message, byte for byte if the file has JSON.
"""

import csv
import math
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Any, BinaryIO, Literal, Self

import msgspec
import typer
from typer import Option

from engine.cli.command import CommandError
from engine.kafka.detections import DecodedDetection, decode_record

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_DEVICE = ("udid", "name", "version", "model", "token_push", "id_connector", "time_zone")
# Columns of an object in the message, by column: the name of the object, and of its field.
_WITHIN = {
    "geofence": ("geofence", "id"),
    "transition": ("geofence", "transition"),
    **{name: ("position", name) for name in ("latitude", "longitude", "accuracy")},
    "tag_kind": ("tag", "kind"),
    "tag_value": ("tag", "value"),
    **{name: ("device", name) for name in _DEVICE},
}
COLUMNS = (
    *("uuid", "major", "minor", "proximity", "rssi", "tx_power", "api_key"),
    *(*_WITHIN, "detected_at", "ip"),
)
_NUMBERS = (
    *("major", "minor", "rssi", "tx_power", "geofence", "id_connector", "detected_at"),
    *("latitude", "longitude", "accuracy"),
)
_decode_array = msgspec.json.Decoder(list[msgspec.Raw]).decode


Format = Literal["jsonl", "csv"]
FormatOption = Annotated[
    Format | None, Option("--format", help="Default: by the file's suffix; - is jsonl.")
]


def form_of(file: Path) -> Format:
    """The format by the suffix; standard input (-) is JSON Lines. Raises BadParameter."""
    suffix = file.suffix.lower()
    if suffix == ".csv":
        return "csv"
    if suffix in (".jsonl", ".ndjson", ".json") or str(file) == "-":
        return "jsonl"
    raise typer.BadParameter(
        f"cannot tell the format of {file} by its suffix: say --format jsonl or --format csv",
        param_hint="file",
    )


class Entry(msgspec.Struct, gc=False):
    """One detection of a file: the JSON of its message, or why there is none.

    It has the fields of a Kafka record that decoders read, without a timestamp.
    """

    offset: int  # its line, of a JSON array the number of the item
    value: bytes
    fault: str | None = None
    timestamp: float = math.nan
    topic: str = ""
    partition: int = 0
    key: bytes | None = None

    def decode(self, path_loss_exponent: float, *, timed: bool) -> DecodedDetection:
        """The detection, as the engine decodes it, with `timed` one that has a time.

        Raises ValueError, which says what is wrong.
        """
        if self.fault is not None:
            raise ValueError(self.fault)
        record: Any = self
        try:
            found = decode_record(record, path_loss_exponent)
        except (ValueError, RecursionError) as error:
            raise ValueError(str(error)) from None
        if timed and math.isnan(found.detected_at):
            raise ValueError("detected_at is missing, and its time is needed here")
        return found


class DetectionFile:
    """A file, or standard input for `-`, which is first read to its end, as is a pipe.

    `size` is in bytes. Raises OSError.
    """

    def __init__(self, path: Path, form: Format) -> None:
        is_standard = str(path) == "-"
        self.name = "standard input" if is_standard else str(path)
        self._stream: BinaryIO = sys.stdin.buffer if is_standard else path.open("rb")
        if is_standard or not self._stream.seekable():
            whole = TemporaryFile()  # noqa: SIM115  # it is closed with this object
            shutil.copyfileobj(self._stream, whole)
            self._stream = whole
        self.size = self._stream.seek(0, os.SEEK_END)
        self._form = form

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    @property
    def read(self) -> int:
        """How many bytes were read."""
        return self._stream.tell()

    def entries(self) -> Iterator[Entry]:
        """The detections from the beginning.

        Blank lines are skipped. Raises CommandError if the rest cannot be read.
        """
        self._stream.seek(0)
        lines = self._lines()
        first = next(lines, (1, b""))
        if self._form == "csv":
            header = self._header(*first)
            return (_row(header, number, line) for number, line in lines)
        if first[1].lstrip().startswith(b"["):
            return self._items()
        return (Entry(*each) for each in chain([first], lines) if each[1])

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """The lines that are not blank, with their numbers and without their ends."""
        for number, line in enumerate(iter(self._stream.readline, b""), 1):
            if line.strip():
                content = line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line
                yield number, content.rstrip(b"\r\n")

    def _items(self) -> Iterator[Entry]:
        """The items of a JSON array, with their numbers in place of lines."""
        self._stream.seek(0)
        try:
            items = _decode_array(self._stream.read().removeprefix(_BYTE_ORDER_MARK))
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._fault(1, f"no JSON array of detections: {error}") from None
        return (Entry(number, bytes(item)) for number, item in enumerate(items, 1))

    def _header(self, number: int, line: bytes) -> list[str]:
        try:
            header = [cell.strip().lower() for cell in _cells(line)]
        except ValueError as error:
            raise self._fault(number, str(error)) from None
        wrong = [name for name in header if name not in COLUMNS or header.count(name) > 1]
        if wrong or not header:
            named = ", ".join(map(repr, wrong)) or "nothing"
            accepted = f"accepted, each once, with commas between them: {', '.join(COLUMNS)}"
            raise self._fault(number, f"{named} in the header; {accepted}")
        return header

    def _fault(self, number: int, message: str) -> CommandError:
        return CommandError(f"{self.name}:{number}: {message}")


def _cells(line: bytes) -> list[str]:
    try:
        return next(csv.reader([line.decode()], strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"not CSV: {error}; a row is one line, in UTF-8") from None


def _row(header: Sequence[str], number: int, line: bytes) -> Entry:
    """The message of a row; an empty cell is an absent field."""
    try:
        cells = _cells(line)
    except ValueError as error:
        return Entry(number, b"", str(error))
    if len(cells) != len(header):
        accepted = f"accepted: {len(header)}, as in the header"
        return Entry(number, b"", f"{len(cells)} cells; {accepted}")
    message: dict[str, Any] = {"device": {}}
    for name, cell in zip(header, cells, strict=True):
        value: Any = cell if name == "tag_value" else cell.strip()  # a tag is compared exactly
        if not value:
            continue
        within, field = _WITHIN.get(name, ("", name))
        target = message.setdefault(within, {}) if within else message
        if name in _NUMBERS:
            with suppress(msgspec.DecodeError):  # the engine says what is wrong, or accepts digits
                value = msgspec.json.decode(value, type=int | float)
        target[field] = value
    return Entry(number, msgspec.json.encode(message))
