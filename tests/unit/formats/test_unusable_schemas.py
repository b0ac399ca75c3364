"""Records with an unusable schema, or bytes that do not match it, become dead letters."""

import json
from typing import Any

import pytest

from tests.servers.schema_registry import Registered, SchemaRegistryService
from tests.unit.formats import registered
from tests.unit.formats.registered import avro, detection, framed, protobuf
from tests.unit.formats.registered_records import PROTO, TEN_IN_PARIS, dead_letter_text

CIRCLE = Registered("AVRO", '"A"', references=(("A", "a", 1),))
DEEP = {"type": "array", "items": "null"}
NULLS = ["null"] * 500  # beside a byte: five hundred values a byte


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 0}


def long(size: int) -> bytes:
    """So many bytes in Avro."""
    return avro(b"\x01" * size, "bytes")


def record_of(*types: Any) -> str:
    fields = [{"name": f"f{n}", "type": each} for n, each in enumerate(types)]
    return json.dumps({"type": "record", "name": "R", "fields": fields})


def listed(item: str, kind: str = "array") -> str:
    items = "items" if kind == "array" else "values"
    return json.dumps({"type": kind, items: json.loads(item)})


@pytest.mark.parametrize(
    ("format_", "schema", "message", "expected"),
    [
        ("avro", registered.AVRO, b"", "do not match it"),
        ("avro", registered.AVRO, b"\xff" * 50, "do not match it"),
        ("avro", registered.AVRO, avro(detection(detected_at=TEN_IN_PARIS)) + b"x", "left over"),
        ("avro", registered.AVRO, avro(detection(detected_at=TEN_IN_PARIS)), "one of proximity"),
        ("avro", registered.PROTOBUF, b"", "it is PROTOBUF, and the topic's format is AVRO"),
        ("avro", Registered("AVRO", "{"), b"", "no valid Avro schema"),
        ("avro", Registered("AVRO", '"nothing"'), b"", "no valid Avro schema"),
        ("avro", Registered("AVRO", '"string"'), b"\x00", "Expected `object`"),
        ("avro", Registered("AVRO", json.dumps(DEEP)), b"\xfe" * 9, "take almost no bytes"),
        ("avro", Registered("AVRO", record_of(DEEP)), b"\xfe" * 9, "take almost no bytes"),
        # Of a byte each: ten thousand values a byte.
        (
            "avro",
            Registered("AVRO", listed(record_of("boolean", *["null"] * 500))),
            b"",
            "no bytes",
        ),
        ("avro", Registered("AVRO", listed(record_of(*["null"] * 500), "map")), b"", "no bytes"),
        ("avro", Registered("AVRO", record_of(DECIMAL)), long(1_000_000), "do not match it"),
        ("avro", Registered("AVRO", record_of(["null", "R"])), b"\x02" * 9, "R contains itself"),
        (
            "avro",
            Registered("AVRO", record_of({"type": "map", "values": "R"})),
            b"\x02" * 9,
            "R contains itself",
        ),
        ("avro", Registered("AVRO", record_of(*["null"] * 10_001)), b"", "too many"),
        ("avro", CIRCLE, b"", "it needs more than 32 others"),
        (
            "avro",
            Registered("AVRO", record_of({"type": "long", "logicalType": "timestamp-millis"})),
            b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            "do not match it",
        ),
        (
            "avro",
            Registered(
                "AVRO", record_of({"type": "long", "logicalType": "local-timestamp-millis"})
            ),
            b"\x02",
            "no time zone",
        ),
        ("protobuf", registered.PROTOBUF, b"", "cut off"),
        ("protobuf", registered.PROTOBUF, b"\xff" * 5, "cut off"),
        ("protobuf", registered.PROTOBUF, b"\x01", "-1 indexes"),
        ("protobuf", registered.PROTOBUF, b"\x24" + b"\x00" * 18, "18 indexes"),
        ("protobuf", registered.PROTOBUF, b"\x02\x01", "not negative"),
        ("protobuf", registered.PROTOBUF, b"\x02\x06", "no message of the indexes [3]"),
        ("protobuf", registered.PROTOBUF, b"\x02\x02\xff\xff", "do not match it"),
        # A string of four gigabytes; groups within groups without end.
        ("protobuf", registered.PROTOBUF, b"\x02\x02\x0a\xff\xff\xff\xff\x0f", "do not match it"),
        ("protobuf", registered.PROTOBUF, b"\x02\x02" + b"\x4b" * 100_000, "do not match it"),
        ("protobuf", registered.PROTOBUF, b"\x00", "missing required field `uuid`"),
        ("protobuf", registered.PROTOBUF, protobuf(), "missing required field"),
        ("protobuf", registered.PROTOBUF, protobuf(**PROTO | {"major": 65536}), "65535"),
        ("protobuf", registered.AVRO, b"", "it is AVRO, and the topic's format is PROTOBUF"),
        ("protobuf", Registered("PROTOBUF", "syntax"), b"\x00", "no valid Protobuf schema"),
        (
            "protobuf",
            Registered("PROTOBUF", "", serialized=b"\x0a\x01a\x1a\x01b"),
            b"\x00",
            "no valid Protobuf schema",
        ),
        ("json-schema", Registered("JSON", "{}"), b"{", "malformed_json"),
        ("json-schema", Registered("JSON", "{}"), b"[" * 100_000, "malformed_json"),
        ("json-schema", Registered("JSON", "{}"), b"{}", "missing required field"),
        ("json-schema", registered.AVRO, b"{}", "it is AVRO, and the topic's format is JSON"),
    ],
)
async def test_an_unreadable_schema_makes_a_dead_letter(
    registry: SchemaRegistryService,
    format_: str,
    schema: Registered,
    message: bytes,
    expected: str,
) -> None:
    registry.schemas[7] = schema
    registry.subjects[("a", 1)] = CIRCLE
    assert expected in await dead_letter_text(registry, format_, framed(7, message))


@pytest.mark.parametrize("value", [None, b"", b"{}", b"\0\0\0\0", b"\x01\0\0\0\x07{}"])
async def test_a_record_without_the_wire_format_sends_no_request(
    registry: SchemaRegistryService, value: bytes | None
) -> None:
    assert "no Confluent wire format" in await dead_letter_text(registry, "avro", value)
    assert registry.requested == []
