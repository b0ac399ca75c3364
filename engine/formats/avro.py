"""Decodes this project's own detection from Avro's binary encoding, with the writer's schema."""

import io
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import msgspec
from fastavro.read import LOGICAL_READERS

from engine.formats.registry import Decode, SchemaKind

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


def compiled(schema: str, references: Mapping[str, str]) -> Decode:
    """The decoder of a schema's messages. Raises ValueError for an invalid schema."""
    named: dict[str, Any] = {}
    try:
        for text in references.values():
            fastavro.parse_schema(_decode_json(text), named_schemas=named)
        parsed = fastavro.parse_schema(_decode_json(schema), named_schemas=named)
    except Exception as error:  # fastavro also raises Python's own errors
        raise ValueError(f"no valid Avro schema: {error}") from error

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


SCHEMA_KIND = SchemaKind("AVRO", compiled)
