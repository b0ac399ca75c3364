"""Schemas of detections as producers register them, and records that they write."""

import io
import json
import struct
import uuid
from typing import Any

import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from tests.servers.schema_registry import Registered
from tests.unit.engine.records import UUID

FIELD = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    "string": FIELD.TYPE_STRING,
    "uint32": FIELD.TYPE_UINT32,
    "int64": FIELD.TYPE_INT64,
    "double": FIELD.TYPE_DOUBLE,
    "bytes": FIELD.TYPE_BYTES,
}

AVRO_DEVICE = {
    "type": "record",
    "name": "Device",
    "namespace": "org.example",
    "fields": [
        {"name": "udid", "type": "string"},
        {"name": "model", "type": ["null", "string"], "default": None},
    ],
}
AVRO_DETECTION: dict[str, Any] = {
    "type": "record",
    "name": "Detection",
    "namespace": "org.example",
    "fields": [
        {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "major", "type": "int"},
        {"name": "minor", "type": "int"},
        {"name": "rssi", "type": ["null", "double"], "default": None},
        {
            "name": "proximity",
            "type": [
                "null",
                {"type": "enum", "name": "Zone", "symbols": ["IMMEDIATE", "NEAR", "FAR"]},
            ],
            "default": None,
        },
        {"name": "device", "type": AVRO_DEVICE},
        {"name": "detected_at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "floor", "type": ["null", "string"], "default": None},
    ],
}
AVRO = Registered("AVRO", json.dumps(AVRO_DETECTION))


def detection(**fields: Any) -> dict[str, Any]:
    """As a producer has it."""
    whole = {"uuid": UUID, "major": 1, "minor": 42, "device": {"udid": "device-1"}} | fields
    return {name: value for name, value in whole.items() if value is not None}


def framed(id_: int, message: bytes) -> bytes:
    """Confluent's wire format."""
    return b"\0" + struct.pack(">I", id_) + message


def header(name: int | uuid.UUID, indexes: bytes = b"") -> tuple[str, bytes]:
    """The same where the schema is named in a header, and the value is the message alone."""
    head = b"\1" + name.bytes if isinstance(name, uuid.UUID) else framed(name, b"")
    return "__value_schema_id", head + indexes


def avro(message: Any, schema: Any = AVRO_DETECTION) -> bytes:
    """The message in Avro's binary encoding."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), message)
    return stream.getvalue()


def proto_file(name: str = "detection.proto") -> descriptor_pb2.FileDescriptorProto:
    """A file with the messages Heartbeat and Detection, with Zone and Device within the latter.

    syntax = "proto3"; package org.example; import "google/protobuf/timestamp.proto";
    message Detection { string uuid = 1; uint32 major = 2; uint32 minor = 3; Zone proximity = 4;
      optional double rssi = 5; Device device = 6; google.protobuf.Timestamp detected_at = 7;
      repeated string tags = 8;
      message Device { string udid = 1; string model = 2; int64 id_connector = 3; }
      enum Zone { ZONE... } }
    """
    file = descriptor_pb2.FileDescriptorProto(
        name=name,
        package="org.example",
        syntax="proto3",
        dependency=[timestamp_pb2.DESCRIPTOR.name],
    )
    file.message_type.add(name="Heartbeat").field.append(_field("at", 1, "int64"))
    message = file.message_type.add(name="Detection")
    zone = message.enum_type.add(name="Proximity")
    for number, label in enumerate(("UNSPECIFIED", "IMMEDIATE", "NEAR", "FAR")):
        zone.value.add(name=f"PROXIMITY_{label}", number=number)
    device = message.nested_type.add(name="Device")
    device.field.extend(
        [
            _field("udid", 1, "string"),
            _field("model", 2, "string"),
            _field("id_connector", 3, "int64"),
        ]
    )
    message.field.extend(
        [
            _field("uuid", 1, "string"),
            _field("major", 2, "uint32"),
            _field("minor", 3, "uint32"),
            FIELD(
                name="proximity",
                number=4,
                label=FIELD.LABEL_OPTIONAL,
                type=FIELD.TYPE_ENUM,
                type_name=".org.example.Detection.Proximity",
            ),
            FIELD(
                name="rssi",
                number=5,
                label=FIELD.LABEL_OPTIONAL,
                type=FIELD.TYPE_DOUBLE,
                proto3_optional=True,
                oneof_index=0,
            ),
            _message("device", 6, ".org.example.Detection.Device"),
            _message("detected_at", 7, ".google.protobuf.Timestamp"),
            FIELD(name="tags", number=8, label=FIELD.LABEL_REPEATED, type=FIELD.TYPE_STRING),
        ]
    )
    message.oneof_decl.add(name="_rssi")
    return file


def _field(name: str, number: int, type_: str) -> Any:
    return FIELD(name=name, number=number, label=FIELD.LABEL_OPTIONAL, type=_TYPES[type_])


def _message(name: str, number: int, type_name: str) -> Any:
    return FIELD(
        name=name,
        number=number,
        label=FIELD.LABEL_OPTIONAL,
        type=FIELD.TYPE_MESSAGE,
        type_name=type_name,
    )


PROTOBUF = Registered("PROTOBUF", "syntax...", serialized=proto_file().SerializeToString())
# The indexes of the type in front of the message: Detection is the second of the file.
SECOND = b"\x02\x02"


def protobuf(**fields: Any) -> bytes:
    """A Detection in Protobuf, behind its indexes."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(proto_file().SerializeToString())
    found = pool.FindMessageTypeByName("org.example.Detection")
    encoded: bytes = message_factory.GetMessageClass(found)(**fields).SerializeToString()
    return SECOND + encoded
