"""Decodes this project's own detection from Avro's binary encoding, with the writer's schema."""

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
    """Limit the length of decimals. The library's reader takes time quadratic in the length:
    seconds for two hundred thousand bytes."""

    def read_decimal(data: bytes, *schemas: Any) -> Decimal:
        if len(data) > _LONGEST_DECIMAL:
            raise ValueError(f"a decimal has at most {_LONGEST_DECIMAL} bytes")
        return read(data, *schemas)

    return read_decimal


for _name in ("bytes-decimal", "fixed-decimal"):
    LOGICAL_READERS[_name] = _bounded(LOGICAL_READERS[_name])


def compiled(schema: RegisteredSchema) -> Decode:
    """The decoder of a schema's messages.

    Raises ValueError for an invalid schema, and for one with which a few bytes could take long to
    decode.
    """
    named: dict[str, Any] = {}
    try:
        for text in schema.references.values():
            fastavro.parse_schema(_decode_json(text), named_schemas=named)
        parsed = fastavro.parse_schema(_decode_json(schema.text), named_schemas=named)
    except Exception as error:  # fastavro also raises Python's own errors
        raise ValueError(f"no valid Avro schema: {error}") from error
    _MinimumSizes(named).of_value(parsed, ())

    def decode(message: bytes) -> object:
        stream = io.BytesIO(message)
        try:
            value = fastavro.schemaless_reader(stream, parsed, None)
        except Exception as error:  # fastavro has no common base class of decoding errors
            raise ValueError(f"the bytes do not match it ({type(error).__name__})") from error
        if stream.tell() != len(message):
            raise ValueError(f"{len(message) - stream.tell()} bytes are left over")
        return _plain(value)

    return decode


class _MinimumSize(NamedTuple):
    """The fewest bytes that encode a value, and the most values that those bytes may encode."""

    bytes: int
    values: int


class _MinimumSizes:
    """Computes the minimum size of values of a schema's types; `named` are its named types.

    Raises ValueError for a type that contains itself, for a list whose items take almost no bytes
    (a few bytes could encode millions of values), and for a schema of more than _MOST_TYPES types,
    repeated ones counted each time.
    """

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._left = _MOST_TYPES

    def of_value(self, schema: Any, within: Collection[str]) -> _MinimumSize:
        """The minimum size of a value of `schema`, inside of the named types `within`."""
        self._left -= 1
        if self._left < 0 or len(within) > _MOST_DEPTH:
            raise ValueError("its types are too many, or nested too deep")
        if isinstance(schema, str):
            return self._of_name(schema, within)
        if isinstance(schema, list):
            branches = [self.of_value(each, within) for each in schema]
            fewest = min((each.bytes for each in branches), default=0)
            most = max((each.values for each in branches), default=0)
            return _MinimumSize(1 + fewest, 1 + most)
        return self._of_type(schema, within)

    def _of_type(self, schema: Any, within: Collection[str]) -> _MinimumSize:
        kind = schema["type"]
        if kind == "array":
            return self._of_list(self.of_value(schema["items"], within))
        if kind == "map":
            value = self.of_value(schema["values"], within)
            return self._of_list(value._replace(bytes=value.bytes + 1))  # the key takes a byte
        if kind == "fixed":
            return _MinimumSize(int(schema["size"]), 1)
        if kind in ("record", "error"):
            inner = (*within, schema["name"])
            fields = [self.of_value(each["type"], inner) for each in schema["fields"]]
            values = 1 + sum(each.values for each in fields)
            return _MinimumSize(sum(each.bytes for each in fields), values)
        return _MinimumSize(1, 1) if kind == "enum" else self.of_value(kind, within)

    @staticmethod
    def _of_list(item: _MinimumSize) -> _MinimumSize:
        """An empty list takes one byte. Items that take too few bytes are refused."""
        if item.values > _MOST_VALUES_A_BYTE * item.bytes:
            raise ValueError("it has a list whose items take almost no bytes")
        return _MinimumSize(1, 1)

    def _of_name(self, name: str, within: Collection[str]) -> _MinimumSize:
        if name in within:
            raise ValueError(f"{name} contains itself")
        if name in self._named:
            return self.of_value(self._named[name], within)
        return _MinimumSize(0 if name == "null" else 1, 1)


def _plain(value: object) -> object:
    """The value as JSON has it. Undoes Avro's logical types of numbers, texts and bytes."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError("a local timestamp has no time zone")
        return round(value.timestamp() * 1000)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    return float(value) if isinstance(value, Decimal) else value
