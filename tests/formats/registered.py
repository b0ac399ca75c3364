"""Schemas of this project's detections, and records that they write."""

import io
import json
import struct
from datetime import UTC, datetime
from typing import Any

import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from engine.formats.decoders import DetectionDecoder
from tests.formats.records import decoder, report
from tests.kafka.records import UUID
from tests.servers.schema_registry import Registered, SchemaRegistryService

FIELD = descriptor_pb2.FieldDescriptorProto
DETECTION = ".org.example.Detection"
ZONES = [f"PROXIMITY_{each}" for each in ("UNSPECIFIED", "IMMEDIATE", "NEAR", "FAR")]
KINDS = ["KIND_NFC", "KIND_QRCODE"]

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


def avro(message: Any, schema: Any = AVRO_DETECTION) -> bytes:
    """The message in Avro's binary encoding."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), message)
    return stream.getvalue()


def add_fields(message: Any, *fields: tuple[str, int, str]) -> None:
    """Add fields: a scalar's type in upper case, or the name of a message or enumeration."""
    for name, number, type_ in fields:
        one = message.field.add(name=name, number=number, label=FIELD.LABEL_OPTIONAL)
        if type_.isupper():
            one.type = FIELD.Type.Value(f"TYPE_{type_}")
        else:
            one.type_name = type_


def proto_file() -> descriptor_pb2.FileDescriptorProto:
    """A file with the messages Heartbeat and Detection."""
    file = descriptor_pb2.FileDescriptorProto(
        name="detection.proto",
        syntax="proto3",
        package="org.example",
        dependency=["google/protobuf/timestamp.proto"],
    )
    add_fields(file.message_type.add(name="Heartbeat"), ("at", 1, "INT64"))
    message = file.message_type.add(name="Detection")
    for enum, values in (("Proximity", ZONES), ("Kind", KINDS)):
        made = message.enum_type.add(name=enum)
        for number, value in enumerate(values):
            made.value.add(name=value, number=number)
    nested = message.nested_type.add
    device = nested(name="Device")
    add_fields(device, ("udid", 1, "STRING"), ("model", 2, "STRING"), ("id_connector", 3, "INT64"))
    add_fields(nested(name="Tag"), ("kind", 1, f"{DETECTION}.Kind"), ("value", 2, "STRING"))
    add_fields(nested(name="Position"), ("latitude", 1, "DOUBLE"), ("longitude", 2, "DOUBLE"))
    add_fields(
        message,
        *(("uuid", 1, "STRING"), ("major", 2, "UINT32"), ("minor", 3, "UINT32")),
        *(("proximity", 4, f"{DETECTION}.Proximity"), ("rssi", 5, "DOUBLE")),
        *(("device", 6, f"{DETECTION}.Device"), ("tag", 9, f"{DETECTION}.Tag")),
        *(("position", 10, f"{DETECTION}.Position"), ("api_key", 11, "STRING")),
        *(("detected_at", 7, ".google.protobuf.Timestamp"), ("tags", 8, "STRING")),
    )
    message.field[-1].label = FIELD.LABEL_REPEATED
    message.field[4].proto3_optional, message.field[4].oneof_index = True, 0
    message.oneof_decl.add(name="_rssi")
    return file


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
    return decoder(format_, schema_registry_url=registry.address(), **more)


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
