"""This project's own detection in Avro's binary encoding, by the schema that wrote it."""

import io
from collections.abc import Collection, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import msgspec

from engine.kafka.formats.registered import Decode
from engine.kafka.schema_registry import RegisteredSchema

KIND = "AVRO"
FORM = None
INDEXED = False

_MOST_DEPTH = 16
_MOST_TYPES = 10_000
_decode_json = msgspec.json.Decoder().decode


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
    _Types(named).least_bytes(parsed, ())

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


class _Types:
    """Works out the fewest bytes of values, over the `named` types of a schema.

    Raises ValueError for a type within itself, for a list of what takes no bytes (a few bytes could
    say millions of them), and for a schema that is more than _MOST_TYPES when it is written out.
    """

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._left = _MOST_TYPES

    def least_bytes(self, schema: Any, within: Collection[str]) -> int:
        """Of a value, inside of the types `within`."""
        self._left -= 1
        if self._left < 0 or len(within) > _MOST_DEPTH:
            raise ValueError("its types are too many, or nested too deep")
        if isinstance(schema, str):
            return self._of_name(schema, within)
        if isinstance(schema, list):
            return 1 + min((self.least_bytes(each, within) for each in schema), default=0)
        return self._of_type(schema, within)

    def _of_type(self, schema: Any, within: Collection[str]) -> int:
        kind = schema["type"]
        if kind == "array":
            if self.least_bytes(schema["items"], within) == 0:
                raise ValueError("it has a list of what takes no bytes")
            return 1
        if kind == "map":
            self.least_bytes(schema["values"], within)
            return 1
        if kind == "fixed":
            return int(schema["size"])
        if kind in ("record", "error"):
            inner = (*within, schema["name"])
            return sum(self.least_bytes(each["type"], inner) for each in schema["fields"])
        return 1 if kind == "enum" else self.least_bytes(kind, within)

    def _of_name(self, name: str, within: Collection[str]) -> int:
        if name in within:
            raise ValueError(f"{name} holds itself")
        if name in self._named:
            return self.least_bytes(self._named[name], within)
        return 0 if name == "null" else 1


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
