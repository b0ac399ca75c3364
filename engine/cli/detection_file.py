"""Reads a file of detections: JSON Lines, one JSON array, or CSV, from a file or a pipe.

Each detection becomes the JSON of one message, byte for byte if the file has JSON.
"""

import asyncio
import csv
import math
import os
import re
import stat
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from enum import StrEnum
from io import FileIO
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

import msgspec
import typer
from typer import Option

from engine.cli.command import CommandError
from engine.kafka.detections import DecodedDetection, decode_record, failure_detail

BLOCK = 256 * 1024
LONGEST_LINE = 16 * 1024 * 1024
LARGEST_ARRAY = 64 * 1024 * 1024
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
_NUMBERS = ("major", "minor", "rssi", "tx_power", "geofence", "id_connector", "detected_at")
_DEGREES = ("latitude", "longitude", "accuracy")
_NUMBER = re.compile(r"-?[0-9]{1,15}")
_DECIMAL = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?")
_decode_array = msgspec.json.Decoder(list[msgspec.Raw]).decode


class Format(StrEnum):
    """What `--format` takes."""

    JSONL = "jsonl"
    CSV = "csv"


FormatOption = Annotated[
    Format | None, Option("--format", help="Default: by the file's suffix; - is jsonl.")
]


def form_of(file: Path) -> Format:
    """The format by the suffix; standard input (-) is JSON Lines. Raises BadParameter."""
    suffix = file.suffix.lower()
    if suffix == ".csv":
        return Format.CSV
    if suffix in (".jsonl", ".ndjson", ".json") or str(file) == "-":
        return Format.JSONL
    raise typer.BadParameter(
        f"cannot tell the format of {file} by its suffix: say --format jsonl or --format csv",
        param_hint="file",
    )


class InputFaultError(CommandError):
    """The rest of the input cannot be read; the message begins with the place, `file:line`."""


class Entry(NamedTuple):
    """One detection of a file: the JSON of its message, or why there is none."""

    line: int
    value: bytes
    fault: str | None = None

    def decode(self, path_loss_exponent: float, *, timed: bool) -> DecodedDetection:
        """The detection, as the engine decodes it, with `timed` one that has a time.

        Raises ValueError, which says what is wrong.
        """
        if self.fault is not None:
            raise ValueError(self.fault)
        record: Any = FileRecord(self.value, self.line)
        try:
            self.value.decode()  # the decoder does not check fields that it skips
            found = decode_record(record, path_loss_exponent)
        except UnicodeDecodeError as error:
            raise ValueError(f"not UTF-8 (byte {error.start + 1})") from None
        except (ValueError, RecursionError) as error:
            raise ValueError(failure_detail(error, self.value)) from None
        if timed and math.isnan(found.detected_at):
            raise ValueError("detected_at is missing, and its time is needed here")
        return found


class FileRecord(msgspec.Struct, gc=False):
    """The fields of a Kafka record that decoders read. There is no timestamp."""

    value: bytes
    offset: int
    timestamp: float = math.nan
    topic: str = ""
    partition: int = 0
    key: bytes | None = None


class DetectionFile:
    """A file, or standard input for `-`.

    `size` is in bytes, None for a pipe, which can be read only once; `read` counts bytes.
    `is_lines`: it is JSON Lines, which is known with the first block. Raises OSError.
    """

    def __init__(self, path: Path, form: Format) -> None:
        if str(path) == "-":
            self._stream = FileIO(sys.stdin.fileno(), closefd=False)
            self.name = "standard input"
        else:
            self._stream = FileIO(path)
            self.name = str(path)
        status = os.fstat(self._stream.fileno())
        is_file = stat.S_ISREG(status.st_mode)
        self._begin = self._stream.tell() if is_file else 0
        self.size = status.st_size - self._begin if is_file else None
        self.read = 0
        self.is_lines = form is Format.JSONL
        self._form = form

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    async def blocks(self) -> AsyncIterator[list[Entry]]:
        """The detections, a block of the file at a time; a file is read from its beginning.

        Blank lines are skipped. Raises InputFaultError if the rest cannot be read.
        """
        header, first, whole = list[str](), b"", list[bytes]()
        async for number, lines in self._lines():
            filled = [(n, line) for n, line in enumerate(lines, number) if line.strip()]
            if filled and not first:
                first = filled[0][1].lstrip()[:1]
                self.is_lines = self._form is Format.JSONL and first != b"["
                if self._form is Format.CSV:
                    header = self._header(*filled.pop(0))
            if header:
                yield [_row(header, n, line) for n, line in filled]
            elif self.is_lines and first:
                yield [Entry(n, line) for n, line in filled]
            else:
                whole += lines
            if sum(map(len, whole)) > LARGEST_ARRAY:
                raise self._fault(
                    len(whole),
                    f"a JSON array is read whole, up to {LARGEST_ARRAY >> 20} MiB; what is larger "
                    "goes as JSON Lines (jq -c .[] FILE writes it so)",
                )
        if self._form is Format.CSV and not header:
            raise self._fault(1, f"empty; accepted: a header of {', '.join(COLUMNS)}, then rows")
        if not self.is_lines and not header:
            yield list(self._items(b"\n".join(whole)))

    async def _lines(self) -> AsyncIterator[tuple[int, list[bytes]]]:
        """Lines without their ends, and the number of the first one, for each block."""
        number, rest = 1, b""
        async for block in self._blocks_of_bytes():
            if number == 1 and not rest:
                block = block.removeprefix(_BYTE_ORDER_MARK)
            *lines, rest = (rest + block).split(b"\n")
            if len(rest) > LONGEST_LINE:
                raise self._fault(number + len(lines), f"longer than {LONGEST_LINE} bytes")
            yield number, [line.removesuffix(b"\r") for line in lines]
            number += len(lines)
        if rest:
            yield number, [rest.removesuffix(b"\r")]

    async def _blocks_of_bytes(self) -> AsyncIterator[bytes]:
        self.read = 0
        if self.size is not None:
            self._stream.seek(self._begin)
            while block := self._stream.read(BLOCK):
                self.read += len(block)
                yield block
                await asyncio.sleep(0)
            return
        # A pipe is read as it comes, and without a deadline: its writer may be slow.
        reader = asyncio.StreamReader(limit=BLOCK)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), self._stream
        )
        try:
            while block := await reader.read(BLOCK):
                self.read += len(block)
                yield block
        finally:
            transport.close()

    def _items(self, whole: bytes) -> Iterator[Entry]:
        try:
            parts = _decode_array(whole)
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._fault(1, f"no JSON array of detections: {error}") from None
        at, line = 0, 1
        for part in parts:
            value = bytes(part)
            begin = whole.index(value, at)
            line += whole.count(b"\n", at, begin)
            yield Entry(line, value)
            line += value.count(b"\n")
            at = begin + len(value)

    def _header(self, number: int, line: bytes) -> list[str]:
        try:
            header = [cell.strip().lower() for cell in _cells(line)]
        except ValueError as error:
            raise self._fault(number, str(error)) from None
        for name in header:
            if name not in COLUMNS:
                accepted = f"accepted, with commas between them: {', '.join(COLUMNS)}"
                raise self._fault(number, f"unknown column {name!r}; {accepted}")
            if header.count(name) > 1:
                raise self._fault(number, f"the column {name} is there twice")
        return header

    def _fault(self, number: int, message: str) -> InputFaultError:
        return InputFaultError(f"{self.name}:{number}: {message}")


def _cells(line: bytes) -> list[str]:
    try:
        return next(csv.reader([line.decode()], strict=True))
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    except csv.Error as error:
        raise ValueError(f"not CSV: {error}; a row is one line") from None


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
        value = cell if name == "tag_value" else cell.strip()  # a tag is compared exactly
        if not value:
            continue
        within, field = _WITHIN.get(name, ("", name))
        target = message.setdefault(within, {}) if within else message
        is_number = name in _NUMBERS and _NUMBER.fullmatch(value)
        is_decimal = name in _DEGREES and _DECIMAL.fullmatch(value)
        target[field] = int(value) if is_number else float(value) if is_decimal else value
    return Entry(number, msgspec.json.encode(message))
