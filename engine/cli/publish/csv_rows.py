"""CSV: a header of known columns, then a detection a line."""

import csv
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from engine.cli.publish.item import Item
from engine.kafka.detections import canonical_uuid
from engine.kafka.messages import Detection, ReceivedDevice
from engine.kafka.timestamps import parse
from rules.proximity import parse_zone

_HIGHEST = 65535
_LONGEST_UDID = 255
_encode = msgspec.json.Encoder().encode


class Column(NamedTuple):
    """How a cell is read (ValueError when it cannot be), and what is accepted, for a person."""

    read: Callable[[str], Any]
    accepted: str


def _unsigned16(cell: str) -> int:
    if not (cell.isascii() and cell.isdigit() and int(cell) <= _HIGHEST):
        raise ValueError
    return int(cell)


def _whole(cell: str) -> int:
    return int(cell)


def _udid(cell: str) -> str:
    if len(cell) > _LONGEST_UDID:
        raise ValueError
    return cell


def _zone(cell: str) -> str:
    return parse_zone(cell).name.lower()


def _timestamp(cell: str) -> str | int:
    value = int(cell) if cell.isascii() and cell.isdigit() else cell
    parse(value)
    return value


_UNSIGNED16 = Column(_unsigned16, f"a whole number from 0 to {_HIGHEST}")
_WHOLE = Column(_whole, "a whole number")
_TEXT = Column(str, "text")
_DEVICE = {
    "udid": Column(_udid, f"1 to {_LONGEST_UDID} characters"),
    "name": _TEXT,
    "version": _TEXT,
    "model": _TEXT,
    "token_push": _TEXT,
    "id_connector": _WHOLE,
}
COLUMNS = {
    "uuid": Column(canonical_uuid, "32 hexadecimal digits, with or without dashes"),
    "major": _UNSIGNED16,
    "minor": _UNSIGNED16,
    "proximity": Column(_zone, "immediate, near, far, unknown, or 0 to 3"),
    "rssi": Column(_whole, "a whole number of dBm"),
    "tx_power": Column(_whole, "a whole number of dBm"),
    **_DEVICE,
    "detected_at": Column(
        _timestamp, "2026-11-20T10:00:00+0100, RFC 3339, or integer epoch milliseconds"
    ),
    "ip": _TEXT,
}
_REQUIRED = ("uuid", "major", "minor", "udid")


class CsvRows:
    """Reads the header, then rows; an empty cell is an absent field, a row is one line.

    With `recorded` every row must have detected_at.
    """

    def __init__(self, *, recorded: bool = False) -> None:
        self._required = (*_REQUIRED, "detected_at") if recorded else _REQUIRED
        self._recorded = recorded
        self._header: list[str] | None = None

    def read(self, line: bytes) -> Item | None:
        """The item of a line; None for the header and blank lines. Raises ValueError."""
        if not line.strip():
            return None
        cells = _cells(line)
        if self._header is None:
            self._header = self._checked_header(cells)
            return None
        return self._item(self._header, cells)

    def finish(self) -> list[Item]:
        """Nothing is left over. Raises ValueError when there was not even a header."""
        if self._header is None:
            raise ValueError(f"empty; accepted: a header of {', '.join(COLUMNS)}, then rows")
        return []

    def _checked_header(self, cells: list[str]) -> list[str]:
        header = [cell.strip().lower() for cell in cells]
        for name in header:
            if (mark := name.strip("abcdefghijklmnopqrstuvwxyz_ ")[:1]) in (";", "\t", "|"):
                raise ValueError(f"the cells are separated by {mark!r}; accepted: commas")
            if name not in COLUMNS:
                raise ValueError(f"unknown column {name!r}; accepted: {', '.join(COLUMNS)}")
            if header.count(name) > 1:
                raise ValueError(f"the column {name} is there twice")
        for name in self._required:
            if name not in header:
                needed = f"{', '.join(self._required)}, and proximity or rssi"
                raise ValueError(f"the column {name} is missing; required: {needed}")
        if "proximity" not in header and "rssi" not in header:
            raise ValueError("one of the columns proximity and rssi is required")
        return header

    def _item(self, header: list[str], cells: list[str]) -> Item:
        if len(cells) != len(header):
            raise ValueError(f"{len(cells)} cells; accepted: {len(header)}, as in the header")
        values = {
            name: _value(name, cell.strip())
            for name, cell in zip(header, cells, strict=True)
            if cell.strip()
        }
        for name in self._required:
            if name not in values:
                raise ValueError(f"{name} is empty; accepted: {COLUMNS[name].accepted}")
        if "proximity" not in values and "rssi" not in values:
            raise ValueError("one of proximity and rssi is required")
        recorded = parse(values["detected_at"]) if self._recorded else None
        return Item(values["udid"].encode(), _encode(_detection(values)), recorded)


def _cells(line: bytes) -> list[str]:
    try:
        text = line.decode("utf-8-sig")
        return next(csv.reader([text], strict=True))
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    except csv.Error as error:
        raise ValueError(f"not CSV: {error}; a row is one line") from None


def _value(name: str, cell: str) -> Any:
    column = COLUMNS[name]
    try:
        return column.read(cell)
    except ValueError:
        raise ValueError(f"{name} {cell[:60]!r}; accepted: {column.accepted}") from None


def _detection(values: dict[str, Any]) -> Detection:
    device = {name: value for name, value in values.items() if name in _DEVICE}
    fields = {name: value for name, value in values.items() if name not in _DEVICE}
    return Detection(device=ReceivedDevice(**device), **fields)
