"""Decodes this project's own detection from a Protobuf message, with the writer's schema.

The registry returns the schema as a serialized descriptor (?format=serialized), so that no .proto
text has to be parsed here.
"""

import base64
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.message import DecodeError

from engine.formats.registry import Decode, SchemaKind

_TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPERS = "google.protobuf."
_WELL_KNOWN = {
    file.DESCRIPTOR.name: file.DESCRIPTOR.serialized_pb
    for file in (timestamp_pb2, wrappers_pb2, duration_pb2, struct_pb2)
}
_MOST_INDEXES = 16
# proto3 does not encode a zero. For these fields an absent value means 0, for others it is absent.
_ZERO_COUNTS = ("major", "minor", "latitude", "longitude", "kind", "transition")


def compiled(schema: str, references: Mapping[str, str]) -> Decode:
    """The decoder of a schema's messages, each of any of its types. Raises ValueError for an
    invalid schema."""
    pool = descriptor_pool.DescriptorPool()
    try:
        for name, well_known in _WELL_KNOWN.items():
            if name not in references:
                pool.AddSerializedFile(well_known)
        for name, text in references.items():
            _add(pool, text, name)
        file = _add(pool, schema, None)
    except Exception as error:  # protobuf raises TypeError, KeyError and others
        raise ValueError(f"no valid Protobuf schema: {error}") from error

    @cache
    def message_class(indexes: Sequence[int]) -> Any:
        types, names = file.message_type, [file.package] * bool(file.package)
        for index in indexes:
            if index >= len(types):
                raise ValueError(f"it has no message of the indexes {list(indexes)}")
            names.append(types[index].name)
            types = types[index].nested_type
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(".".join(names)))

    def decode(message: bytes) -> object:
        """The detection in a message that follows the indexes of its type. Raises ValueError."""
        indexes, at = _indexes(message)
        try:
            return _detection(message_class(indexes).FromString(message[at:]))
        except DecodeError:
            raise ValueError("the bytes do not match it") from None

    return decode


def _add(
    pool: descriptor_pool.DescriptorPool, text: str, name: str | None
) -> descriptor_pb2.FileDescriptorProto:
    """Add a file. Other files import it by `name`, whatever name is in the file itself."""
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    if name is not None:
        file.name = name
    pool.AddSerializedFile(file.SerializeToString())
    return file


def _indexes(message: bytes) -> tuple[tuple[int, ...], int]:
    """The indexes of the type, the outermost first, and the position where the message begins.

    The indexes are zigzag numbers that follow their count; a count of zero means the first type.
    """
    count, at = _number(message, 0)
    if count == 0:
        return (0,), at
    if not 0 < count <= _MOST_INDEXES:
        raise ValueError(f"{count} indexes of a type; at most {_MOST_INDEXES}")
    indexes = []
    for _ in range(count):
        index, at = _number(message, at)
        if index < 0:
            raise ValueError("an index of a type is not negative")
        indexes.append(index)
    return tuple(indexes), at


def _number(message: bytes, at: int) -> tuple[int, int]:
    raw = shift = 0
    while at < len(message) and shift < 35:  # 5 bytes of 7 bits hold 32
        byte = message[at]
        raw |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if not byte & 0x80:
            return (raw >> 1) ^ -(raw & 1), at
    raise ValueError("the indexes of a type are cut off")


def _detection(message: Any) -> dict[str, object]:
    plain = _fields(message)
    if "uuid" not in plain:  # another place
        plain = {name: value for name, value in plain.items() if name not in ("major", "minor")}
    elif "proximity" not in plain and "rssi" not in plain:
        # proto3 does not encode an enumeration's zero either; without an rssi the zero was meant.
        field = message.DESCRIPTOR.fields_by_name.get("proximity")
        if field is not None and field.enum_type is not None:
            plain["proximity"] = _enum_name(field, 0)
    return plain


def _fields(message: Any) -> dict[str, object]:
    """The fields that are set, those that a detection does not have among them."""
    plain = {each.name: _plain(each, v) for each, v in message.ListFields() if not each.is_repeated}
    for name in _ZERO_COUNTS:
        field = message.DESCRIPTOR.fields_by_name.get(name)
        if field is not None and not field.has_presence and name not in plain:
            plain[name] = _plain(field, field.default_value)
    return plain


def _plain(field: Any, value: Any) -> object:
    if field.message_type is not None:
        kind = field.message_type.full_name
        if kind == _TIMESTAMP:
            return value.seconds * 1000 + value.nanos // 1_000_000
        is_wrapper = kind.startswith(_WRAPPERS) and hasattr(value, "value")
        return value.value if is_wrapper else _fields(value)
    if field.enum_type is not None:
        return _enum_name(field, value)
    return value.hex() if isinstance(value, bytes) else value


def _enum_name(field: Any, number: int) -> str:
    """The text of an enumeration's value: `near` for NEAR and PROXIMITY_NEAR, `unknown` for
    UNSPECIFIED."""
    value = field.enum_type.values_by_number.get(number)
    name = "" if value is None else str(value.name).lower().removeprefix(f"{field.name}_")
    return "unknown" if name == "unspecified" else name


SCHEMA_KIND = SchemaKind("PROTOBUF", compiled, form="serialized")
