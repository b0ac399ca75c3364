"""Avro, Protobuf and JSON Schema behind Confluent's wire format, with a registry over HTTP."""

import json
from typing import Any

import orjson
import pytest

from engine.kafka.decoding import Record
from rules.model import Zone
from tests.servers.schema_registry import Registered, SchemaRegistryService
from tests.unit.engine.records import UUID
from tests.unit.formats import registered
from tests.unit.formats.records import ARRIVED_AT, report
from tests.unit.formats.registered import avro, detection, framed, protobuf
from tests.unit.formats.registered_records import (
    PROTO,
    TEN_IN_PARIS,
    dead_letter_text,
    decoded_detection,
    registered_decoder,
)

AT = 1_795_165_200.25  # TEN_IN_PARIS


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
    found = await decoded_detection(registry, "avro", framed(7, message))
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
    found = await decoded_detection(registry, "protobuf", framed(7, protobuf(**whole)))
    assert found.key == (UUID, whole["major"], whole["minor"])
    assert (found.zone, found.detected_at) == (zone, at)
    device = found.message.device
    assert (device.udid, device.model, device.id_connector) == ("device-1", None, None)


async def test_json_schema(registry: SchemaRegistryService) -> None:
    registry.schemas[7] = Registered("JSON", "{}")
    body = orjson.dumps(detection(proximity="near", detected_at=1_795_165_200_250))
    found = await decoded_detection(registry, "json-schema", framed(7, body))
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
        found = await decoded_detection(registry, "protobuf", framed(7, indexes + message))
        assert found.key == (UUID, 1, 42)


async def test_in_cloudevents(registry: SchemaRegistryService) -> None:
    registry.schemas[7] = registered.AVRO
    message = avro(detection(detected_at=TEN_IN_PARIS, rssi=-50))
    names = [("ce_specversion", b"1.0"), ("ce_id", b"1"), ("ce_source", b"/"), ("ce_type", b"t")]
    record = report(framed(7, message), headers=names)
    batch = await registered_decoder(registry, "cloudevents+avro").decode([record])
    assert [found.key for found in batch.messages] == [(UUID, 1, 42)]


async def test_each_schema_is_requested_once(registry: SchemaRegistryService) -> None:
    """Whatever the registry has, and for both callers: `read` and a batch."""
    registry.schemas |= {7: registered.AVRO, 8: Registered("AVRO", '"string"')}
    one = registered_decoder(registry, "avro")
    good = report(framed(7, avro(detection(detected_at=TEN_IN_PARIS, rssi=-50))))
    for _ in range(2):
        batch = await one.decode([good, report(framed(8, b"\x00")), good, report(framed(9, b""))])
        assert (len(batch.messages), len(batch.dead_letters)) == (2, 2)
    assert sorted(registry.requested) == ["/schemas/ids/7", "/schemas/ids/8", "/schemas/ids/9"]
    await one.prepare([good])
    assert [found.key for found in one.read(good)] == [(UUID, 1, 42)]
    assert len(registry.requested) == 3


async def test_many_unknown_ids_displace_no_schema(
    registry: SchemaRegistryService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.kafka.schema_registry._MOST_SCHEMAS", 64)
    monkeypatch.setattr("engine.kafka.schema_registry._MOST_UNREADABLE", 64)
    registry.schemas[1] = registered.AVRO
    message = avro(detection(detected_at=TEN_IN_PARIS, rssi=-50))

    def records(*ids: int) -> list[Record]:
        return [report(framed(id_, message)) for id_ in ids]

    one = registered_decoder(registry, "avro")
    for batch in ([1, *range(100, 300)], [*range(300, 400), 1]):
        assert len((await one.decode(records(*batch))).messages) == 1
    assert registry.requested.count("/schemas/ids/1") == 1
    registry_of = one._read_report._registry  # type: ignore[attr-defined]
    assert len(registry_of._unreadable) == 64
    # More schemas in a batch than are remembered: those of the next records always are.
    registry.schemas |= dict.fromkeys(range(1000, 1200), registered.AVRO)
    assert len((await one.decode(records(*range(1000, 1200)))).messages) == 200
    assert len(registry_of._schemas) == 64


async def test_an_unknown_schema_is_requested_again_after_a_minute(
    registry: SchemaRegistryService, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    one = registered_decoder(registry, "avro")
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
    assert (await decoded_detection(registry, "avro", framed(7, message))).key == (UUID, 1, 42)
    assert registry.requested == ["/schemas/ids/7", "/subjects/a%20device/versions/3"]

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
    reason = await dead_letter_text(registry, "protobuf", framed(8, b"\x00"))
    assert "missing required field `uuid`" in reason
