"""Schemas of this project's detections, and records that they write."""

import io
import json
import struct
import uuid
from datetime import UTC, datetime
from typing import Any

import fastavro
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    timestamp_pb2,
)

from engine.formats.decoders import DetectionDecoder
from tests.formats.records import decoder, report
from tests.kafka.records import UUID
from tests.servers.schema_registry import Registered, SchemaRegistryService

FIELD = descriptor_pb2.FieldDescriptorProto

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


_FILE = """
syntax: "proto3" package: "org.example" dependency: "google/protobuf/timestamp.proto"
message_type {
  name: "Heartbeat" field { name: "at" number: 1 label: LABEL_OPTIONAL type: TYPE_INT64 }
}
message_type {
  name: "Detection"
  enum_type {
    name: "Proximity"
    value { name: "PROXIMITY_UNSPECIFIED" number: 0 }
    value { name: "PROXIMITY_IMMEDIATE" number: 1 }
    value { name: "PROXIMITY_NEAR" number: 2 }
    value { name: "PROXIMITY_FAR" number: 3 }
  }
  nested_type {
    name: "Device"
    field { name: "udid" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
    field { name: "model" number: 2 label: LABEL_OPTIONAL type: TYPE_STRING }
    field { name: "id_connector" number: 3 label: LABEL_OPTIONAL type: TYPE_INT64 }
  }
  field { name: "uuid" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "major" number: 2 label: LABEL_OPTIONAL type: TYPE_UINT32 }
  field { name: "minor" number: 3 label: LABEL_OPTIONAL type: TYPE_UINT32 }
  field {
    name: "proximity" number: 4 label: LABEL_OPTIONAL type: TYPE_ENUM
    type_name: ".org.example.Detection.Proximity"
  }
  field {
    name: "rssi" number: 5 label: LABEL_OPTIONAL type: TYPE_DOUBLE
    proto3_optional: true oneof_index: 0
  }
  field {
    name: "device" number: 6 label: LABEL_OPTIONAL type: TYPE_MESSAGE
    type_name: ".org.example.Detection.Device"
  }
  field {
    name: "detected_at" number: 7 label: LABEL_OPTIONAL type: TYPE_MESSAGE
    type_name: ".google.protobuf.Timestamp"
  }
  enum_type {
    name: "Kind" value { name: "KIND_NFC" number: 0 } value { name: "KIND_QRCODE" number: 1 }
  }
  nested_type {
    name: "Tag"
    field {
      name: "kind" number: 1 label: LABEL_OPTIONAL type: TYPE_ENUM
      type_name: ".org.example.Detection.Kind"
    }
    field { name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_STRING }
  }
  nested_type {
    name: "Position"
    field { name: "latitude" number: 1 label: LABEL_OPTIONAL type: TYPE_DOUBLE }
    field { name: "longitude" number: 2 label: LABEL_OPTIONAL type: TYPE_DOUBLE }
  }
  field {
    name: "tag" number: 9 label: LABEL_OPTIONAL type: TYPE_MESSAGE
    type_name: ".org.example.Detection.Tag"
  }
  field {
    name: "position" number: 10 label: LABEL_OPTIONAL type: TYPE_MESSAGE
    type_name: ".org.example.Detection.Position"
  }
  field { name: "api_key" number: 11 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "tags" number: 8 label: LABEL_REPEATED type: TYPE_STRING }
  oneof_decl { name: "_rssi" }
}
"""


def proto_file(name: str = "detection.proto") -> descriptor_pb2.FileDescriptorProto:
    """A file with the messages Heartbeat and Detection."""
    file = descriptor_pb2.FileDescriptorProto(name=name)
    return text_format.Parse(_FILE, file)


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


TEN_IN_PARIS = datetime(2026, 11, 20, 9, 0, 0, 250_000, UTC)
PROTO = {"uuid": UUID, "major": 1, "minor": 42, "device": {"udid": "device-1"}}


def registered_decoder(
    registry: SchemaRegistryService, format_: str, **more: Any
) -> DetectionDecoder:
    return decoder(format_, schema_registry_url=registry.url(), **more)


async def decoded_detection(registry: SchemaRegistryService, format_: str, value: bytes) -> Any:
    """The detection of a valid record."""
    batch = await registered_decoder(registry, format_).decode([report(value)])
    assert batch.dead_letters == [], batch.dead_letters[0].detail
    (found,) = batch.messages
    return found


async def dead_letter_text(
    registry: SchemaRegistryService, format_: str, value: bytes | None
) -> str:
    """The reason and the detail of the dead letter of an invalid record."""
    batch = await registered_decoder(registry, format_).decode([report(value)])
    assert batch.messages == []
    (letter,) = batch.dead_letters
    assert letter.reason.value in ("invalid_field", "malformed_json")
    return f"{letter.reason.value}: {letter.detail}"
