"""Reads a file of detections: JSON Lines, one JSON array, or CSV, from a file or a pipe.

Each detection becomes the JSON of one message, byte for byte if the file has JSON.
"""

import csv
import math
import os
import shutil
import sys
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Any, BinaryIO, Literal, Self

import msgspec
from typer import Option

from engine.cli.command import CommandError
from engine.kafka.detections import DecodedDetection, decode_record

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
    Format | None, Option("--format", help="Default: csv by the suffix .csv, else jsonl.")
]


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

        Raises UNDECODABLE, which says what is wrong.
        """
        if self.fault is not None:
            raise ValueError(self.fault)
        record: Any = self
        found = decode_record(record, path_loss_exponent)
        if timed and math.isnan(found.detected_at):
            raise ValueError("detected_at is missing, and its time is needed here")
        return found


class DetectionFile:
    """A file, or standard input for `-`, which is first read to its end, as is a pipe.

    `size` is in bytes. Raises OSError.
    """

    def __init__(self, path: Path, form: Format | None = None) -> None:
        is_standard = str(path) == "-"
        self.name = "standard input" if is_standard else str(path)
        self._stream: BinaryIO = sys.stdin.buffer if is_standard else path.open("rb")
        if is_standard or not self._stream.seekable():
            whole = TemporaryFile()  # noqa: SIM115  # it is closed with this object
            shutil.copyfileobj(self._stream, whole)
            self._stream = whole
        self.size = self._stream.seek(0, os.SEEK_END)
        self._form = form or ("csv" if path.suffix.lower() == ".csv" else "jsonl")

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
        lines = self._lines()
        first = next(lines, (1, b""))
        try:
            if self._form == "csv":
                header = _header(first[1])
                return (_row(header, number, line) for number, line in lines)
            if first[1].lstrip().startswith(b"["):
                return self._items()
        except (ValueError, RecursionError) as error:
            raise CommandError(f"{self.name}:{first[0]}: {error}") from None
        return (Entry(*each) for each in chain([first], lines) if each[1])

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """The lines that are not blank, with their numbers and without their ends."""
        self._stream.seek(0)
        for number, line in enumerate(self._stream, 1):
            line = line if number > 1 else line.removeprefix(BOM_UTF8)
            if line.strip():
                yield number, line.rstrip(b"\r\n")

    def _items(self) -> Iterator[Entry]:
        """The items of a JSON array, with their numbers in place of lines."""
        self._stream.seek(0)
        try:
            items = _decode_array(self._stream.read().removeprefix(BOM_UTF8))
        except msgspec.DecodeError as error:
            raise ValueError(f"no JSON array of detections: {error}") from None
        return (Entry(number, bytes(item)) for number, item in enumerate(items, 1))


def _header(line: bytes) -> list[str]:
    header = [cell.strip().lower() for cell in _cells(line)]
    wrong = [name for name in header if name not in COLUMNS or header.count(name) > 1]
    if wrong or not header:
        named = ", ".join(map(repr, wrong)) or "nothing"
        accepted = f"accepted, each once, with commas between them: {', '.join(COLUMNS)}"
        raise ValueError(f"{named} in the header; {accepted}")
    return header


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
        fault = f"{len(cells)} cells; accepted: {len(header)}, as in the header"
        return Entry(number, b"", fault)
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
