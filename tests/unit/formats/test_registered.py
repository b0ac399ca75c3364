"""Avro, Protobuf and JSON Schema behind Confluent's wire format, with a registry over HTTP."""

import json
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from engine.kafka.decoding import Record
from engine.kafka.detection_decoder import DetectionDecoder
from rules.model import Zone
from tests.servers.schema_registry import Registered, SchemaRegistryService
from tests.unit.engine.records import UUID
from tests.unit.formats import registered
from tests.unit.formats.records import ARRIVED_AT, decoder, report
from tests.unit.formats.registered import avro, detection, framed, protobuf

TEN_IN_PARIS = datetime(2026, 11, 20, 9, 0, 0, 250_000, UTC)
AT = 1_795_165_200.25
PROTO = {"uuid": UUID, "major": 1, "minor": 42, "device": {"udid": "device-1"}}


def of(registry: SchemaRegistryService, format_: str, **more: Any) -> DetectionDecoder:
    return decoder(format_, schema_registry_url=registry.url(), **more)


async def one(registry: SchemaRegistryService, format_: str, value: bytes) -> Any:
    """The detection of a record that is understood."""
    batch = await of(registry, format_).decode([report(value)])
    assert batch.dead_letters == [], batch.dead_letters[0].detail
    (found,) = batch.messages
    return found


async def why_not(registry: SchemaRegistryService, format_: str, value: bytes | None) -> str:
    """The detail of the dead letter of a record that is not."""
    batch = await of(registry, format_).decode([report(value)])
    assert batch.messages == []
    (letter,) = batch.dead_letters
    assert letter.reason.value in ("invalid_field", "malformed_json")
    return f"{letter.reason.value}: {letter.detail}"


@pytest.mark.parametrize(
    ("fields", "zone"),
    [
        ({"proximity": "NEAR"}, Zone.NEAR),
        ({"rssi": -90.5}, Zone.FAR),
        ({"rssi": -40, "proximity": "FAR", "floor": "2"}, Zone.FAR),
    ],
)
async def test_avro(registry: SchemaRegistryService, fields: dict[str, Any], zone: Zone) -> None:
    registry.schemas[7] = registered.AVRO
    message = avro(detection(detected_at=TEN_IN_PARIS, **fields))
    found = await one(registry, "avro", framed(7, message))
    assert (found.key, found.zone, found.detected_at) == ((UUID, 1, 42), zone, AT)
    assert (found.message.device.udid, found.index) == ("device-1", 0)


@pytest.mark.parametrize(
    ("fields", "zone", "at"),
    [
        ({"proximity": "PROXIMITY_IMMEDIATE", "major": 0}, Zone.IMMEDIATE, ARRIVED_AT),
        ({"rssi": -90.5, "minor": 0}, Zone.FAR, ARRIVED_AT),
        ({"detected_at": TEN_IN_PARIS, "tags": ["a"]}, Zone.UNKNOWN, AT),
    ],
)
async def test_protobuf(
    registry: SchemaRegistryService, fields: dict[str, Any], zone: Zone, at: float
) -> None:
    registry.schemas[7] = registered.PROTOBUF
    whole = PROTO | fields
    found = await one(registry, "protobuf", framed(7, protobuf(**whole)))
    assert found.key == (UUID, whole["major"], whole["minor"])
    assert (found.zone, found.detected_at) == (zone, at)
    device = found.message.device
    assert (device.udid, device.model, device.id_connector) == ("device-1", None, None)


async def test_json_schema(registry: SchemaRegistryService) -> None:
    registry.schemas[7] = Registered("JSON", "{}")
    body = orjson.dumps(detection(proximity="near", detected_at=1_795_165_200_250))
    found = await one(registry, "json-schema", framed(7, body))
    assert (found.key, found.zone, found.detected_at) == ((UUID, 1, 42), Zone.NEAR, AT)


async def test_the_first_message_of_a_file_is_a_single_zero(
    registry: SchemaRegistryService,
) -> None:
    file = registered.proto_file()
    file.message_type.reverse()
    text = file.SerializeToString()
    registry.schemas[7] = Registered("PROTOBUF", "", serialized=text)
    message = protobuf(**PROTO, rssi=-50).removeprefix(registered.SECOND)
    for indexes in (b"\x00", b"\x02\x00"):
        assert (await one(registry, "protobuf", framed(7, indexes + message))).key == (UUID, 1, 42)


async def test_in_cloudevents(registry: SchemaRegistryService) -> None:
    registry.schemas[7] = registered.AVRO
    message = avro(detection(detected_at=TEN_IN_PARIS, rssi=-50))
    names = [("ce_specversion", b"1.0"), ("ce_id", b"1"), ("ce_source", b"/"), ("ce_type", b"t")]
    record = report(framed(7, message), headers=names)
    batch = await of(registry, "cloudevents+avro").decode([record])
    assert [found.key for found in batch.messages] == [(UUID, 1, 42)]


async def test_each_schema_is_asked_for_once(registry: SchemaRegistryService) -> None:
    """Whatever the registry has of it, and whoever asks: read, or a batch."""
    registry.schemas |= {7: registered.AVRO, 8: Registered("AVRO", '"string"')}
    one = of(registry, "avro")
    good = report(framed(7, avro(detection(detected_at=TEN_IN_PARIS, rssi=-50))))
    for _ in range(2):
        batch = await one.decode([good, report(framed(8, b"\x00")), good, report(framed(9, b""))])
        assert (len(batch.messages), len(batch.dead_letters)) == (2, 2)
    assert sorted(registry.asked) == ["/schemas/ids/7", "/schemas/ids/8", "/schemas/ids/9"]
    await one.prepare([good])
    assert [found.key for found in one.read(good)] == [(UUID, 1, 42)]
    assert len(registry.asked) == 3


async def test_many_unknown_ids_displace_no_schema(
    registry: SchemaRegistryService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.kafka.schema_registry._MOST_SCHEMAS", 64)
    monkeypatch.setattr("engine.kafka.schema_registry._MOST_UNREADABLE", 64)
    registry.schemas[1] = registered.AVRO
    message = avro(detection(detected_at=TEN_IN_PARIS, rssi=-50))

    def records(*ids: int) -> list[Record]:
        return [report(framed(id_, message)) for id_ in ids]

    one = of(registry, "avro")
    for batch in ([1, *range(100, 300)], [*range(300, 400), 1]):
        assert len((await one.decode(records(*batch))).messages) == 1
    assert registry.asked.count("/schemas/ids/1") == 1
    registry_of = one._read_report._registry  # type: ignore[attr-defined]
    assert len(registry_of._unreadable) == 64
    # More schemas in a batch than are remembered: those of the next records always are.
    registry.schemas |= dict.fromkeys(range(1000, 1200), registered.AVRO)
    assert len((await one.decode(records(*range(1000, 1200)))).messages) == 200
    assert len(registry_of._schemas) == 64


async def test_an_unknown_schema_is_asked_for_again_after_a_minute(
    registry: SchemaRegistryService, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    one = of(registry, "avro")
    monkeypatch.setattr(one._read_report._registry, "_clock", lambda: now)  # type: ignore[attr-defined]
    record = report(framed(7, avro(detection(detected_at=TEN_IN_PARIS, rssi=-50))))
    (letter,) = (await one.decode([record])).dead_letters
    assert "schema 7 of the registry: it has no schema of this id" in letter.detail
    registry.schemas[7] = registered.AVRO
    now += 59
    assert (await one.decode([record])).messages == []
    now += 2
    assert len((await one.decode([record])).messages) == 1


async def test_schemas_with_references(registry: SchemaRegistryService) -> None:
    fields = [
        field | {"type": "org.example.Device"} if field["name"] == "device" else field
        for field in registered.AVRO_DETECTION["fields"]
    ]
    text = json.dumps(registered.AVRO_DETECTION | {"fields": fields})
    device = Registered("AVRO", json.dumps(registered.AVRO_DEVICE))
    registry.subjects[("a device", 3)] = device
    referring = (("org.example.Device", "a device", 3),)
    registry.schemas[7] = Registered("AVRO", text, references=referring)
    message = avro(detection(detected_at=TEN_IN_PARIS, rssi=-50))
    assert (await one(registry, "avro", framed(7, message))).key == (UUID, 1, 42)
    assert registry.asked == ["/schemas/ids/7", "/subjects/a%20device/versions/3"]

    # Protobuf: a file that imports the other one.
    importing = registered.proto_file("importing.proto")
    del importing.message_type[:]
    importing.dependency.append("org/example/detection.proto")
    message_type = importing.message_type.add(name="Wrapper")
    message_type.field.append(registered._message("device", 6, ".org.example.Detection.Device"))
    registry.subjects[("detection", 1)] = registered.PROTOBUF
    registry.schemas[8] = Registered(
        "PROTOBUF",
        "",
        serialized=importing.SerializeToString(),
        references=(("org/example/detection.proto", "detection", 1),),
    )
    told = await why_not(registry, "protobuf", framed(8, b"\x00"))
    assert "missing required field `uuid`" in told


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
    ("format_", "schema", "message", "told"),
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
            "no instant",
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
async def test_what_cannot_be_read_is_a_dead_letter(
    registry: SchemaRegistryService,
    format_: str,
    schema: Registered,
    message: bytes,
    told: str,
) -> None:
    registry.schemas[7] = schema
    registry.subjects[("a", 1)] = CIRCLE
    assert told in await why_not(registry, format_, framed(7, message))


@pytest.mark.parametrize("value", [None, b"", b"{}", b"\0\0\0\0", b"\x01\0\0\0\x07{}"])
async def test_what_has_not_the_wire_format_asks_nobody(
    registry: SchemaRegistryService, value: bytes | None
) -> None:
    assert "no Confluent wire format" in await why_not(registry, "avro", value)
    assert registry.asked == []
