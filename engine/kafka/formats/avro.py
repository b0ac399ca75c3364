"""This project's own detection in Avro's binary encoding, by the schema that wrote it."""

import io
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import fastavro
import msgspec
from fastavro.read import LOGICAL_READERS

from engine.kafka.formats.registered import Decode
from engine.kafka.schema_registry import RegisteredSchema

KIND = "AVRO"
FORM = None
INDEXED = False

_MOST_DEPTH = 16
_MOST_TYPES = 10_000
_MOST_VALUES_A_BYTE = 100  # in a list
_LONGEST_DECIMAL = 32  # bytes
_decode_json = msgspec.json.Decoder().decode


def _bounded(read: Callable[..., Decimal]) -> Callable[..., Decimal]:
    """The library's reader of decimals, which takes the square of their length: two hundred
    thousand bytes are seconds."""

    def read_decimal(data: bytes, *schemas: Any) -> Decimal:
        if len(data) > _LONGEST_DECIMAL:
            raise ValueError(f"a decimal has at most {_LONGEST_DECIMAL} bytes")
        return read(data, *schemas)

    return read_decimal


for _name in ("bytes-decimal", "fixed-decimal"):
    LOGICAL_READERS[_name] = _bounded(LOGICAL_READERS[_name])


def compiled(schema: RegisteredSchema) -> Decode:
    """The decoder of a schema's messages. Raises ValueError for a schema that is none, or by which
    few bytes could take long to read."""
    named: dict[str, Any] = {}
    try:
        for text in schema.references.values():
            fastavro.parse_schema(_decode_json(text), named_schemas=named)
        parsed = fastavro.parse_schema(_decode_json(schema.text), named_schemas=named)
    except Exception as error:  # fastavro raises what Python raises, too
        raise ValueError(f"no schema of Avro: {error}") from error
    _Types(named).least(parsed, ())

    def decode(message: bytes) -> object:
        stream = io.BytesIO(message)
        try:
            value = fastavro.schemaless_reader(stream, parsed, None)
        except Exception as error:  # what it raises for bytes that are not by the schema
            raise ValueError(f"the bytes are not by it ({type(error).__name__})") from error
        if stream.tell() != len(message):
            raise ValueError(f"{len(message) - stream.tell()} bytes are left over")
        return _plain(value)

    return decode


class _Least(NamedTuple):
    """Of a value: the fewest bytes that it takes, and how many values may be in those."""

    bytes: int
    values: int


class _Types:
    """Works out what a value takes at least, over the `named` types of a schema.

    Raises ValueError for a type within itself, for a list of what takes next to no bytes (a few
    bytes could say millions of values), and for a schema that is more than _MOST_TYPES when it is
    written out.
    """

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._left = _MOST_TYPES

    def least(self, schema: Any, within: Collection[str]) -> _Least:
        """Of a value, inside of the types `within`."""
        self._left -= 1
        if self._left < 0 or len(within) > _MOST_DEPTH:
            raise ValueError("its types are too many, or nested too deep")
        if isinstance(schema, str):
            return self._of_name(schema, within)
        if isinstance(schema, list):
            branches = [self.least(each, within) for each in schema]
            least = min((each.bytes for each in branches), default=0)
            return _Least(1 + least, 1 + max((each.values for each in branches), default=0))
        return self._of_type(schema, within)

    def _of_type(self, schema: Any, within: Collection[str]) -> _Least:
        kind = schema["type"]
        if kind == "array":
            return self._of_many(self.least(schema["items"], within))
        if kind == "map":
            value = self.least(schema["values"], within)
            return self._of_many(value._replace(bytes=value.bytes + 1))  # and its key
        if kind == "fixed":
            return _Least(int(schema["size"]), 1)
        if kind in ("record", "error"):
            inner = (*within, schema["name"])
            fields = [self.least(each["type"], inner) for each in schema["fields"]]
            values = 1 + sum(each.values for each in fields)
            return _Least(sum(each.bytes for each in fields), values)
        return _Least(1, 1) if kind == "enum" else self.least(kind, within)

    @staticmethod
    def _of_many(item: _Least) -> _Least:
        """A list may be empty; its items pay for themselves, or it is refused."""
        if item.values > _MOST_VALUES_A_BYTE * item.bytes:
            raise ValueError("it has a list of what takes no bytes, or next to none")
        return _Least(1, 1)

    def _of_name(self, name: str, within: Collection[str]) -> _Least:
        if name in within:
            raise ValueError(f"{name} holds itself")
        if name in self._named:
            return self.least(self._named[name], within)
        return _Least(0 if name == "null" else 1, 1)


def _plain(value: object) -> object:
    """As JSON would have it: what logical types make of numbers, texts and bytes is undone."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError("a local timestamp says no instant")
        return round(value.timestamp() * 1000)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    return float(value) if isinstance(value, Decimal) else value
