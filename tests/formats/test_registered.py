"""Detections with a registered schema: what is read, and what becomes a dead letter."""

import asyncio
import json
import math
from datetime import UTC, datetime
from typing import Any

import pytest

from engine.kafka.detections import Record
from engine.kafka.messages import Coordinates, ScannedTag
from rules.model import Zone
from tests.formats import registered
from tests.formats.records import ARRIVED_AT, BATCH, batch_of, report
from tests.formats.registered import (
    PROTO,
    TEN_IN_PARIS,
    avro,
    dead_letter_text,
    decoded_detection,
    detection,
    framed,
    protobuf,
    registered_decoder,
)
from tests.kafka.records import UUID as BEACON
from tests.servers.schema_registry import Registered, SchemaRegistryService

AT = 1_795_165_200.25  # TEN_IN_PARIS


@pytest.mark.parametrize(
    ("fields", "zone"),
    [
        ({"rssi": -90.5}, Zone.FAR),
        ({"rssi": -90, "proximity": "NEAR", "floor": "2"}, Zone.NEAR),
    ],
)
async def test_avro(registry: SchemaRegistryService, fields: dict[str, Any], zone: Zone) -> None:
    registry.schemas[7] = registered.AVRO
    message = avro(detection(detected_at=TEN_IN_PARIS, **fields))
    found = await decoded_detection(registry, "avro", framed(7, message))
    assert (found.key, found.zone, found.detected_at) == ((BEACON, 1, 42), zone, AT)
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
    assert found.key == (BEACON, whole["major"], whole["minor"])
    assert (found.zone, found.detected_at) == (zone, at)
    device = found.message.device
    assert (device.udid, device.model, device.id_connector) == ("device-1", None, None)


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ({"position": {"latitude": -12.5}}, Coordinates(-12.5, 0)),
        ({"tag": {"kind": "KIND_QRCODE", "value": "a"}}, ScannedTag("qrcode", "a")),
        ({"tag": {"kind": "KIND_NFC", "value": "a"}}, ScannedTag("nfc", "a")),
    ],
)
async def test_protobuf_of_another_place(
    registry: SchemaRegistryService, place: dict[str, Any], expected: Any
) -> None:
    registry.schemas[7] = registered.PROTOBUF
    message = protobuf(**place, api_key="k", device={"udid": "d"})
    found = await decoded_detection(registry, "protobuf", framed(7, message))
    assert (found.key, found.message.api_key) == (None, "k")
    assert expected in (found.message.position, found.message.tag)


async def test_each_schema_is_requested_once(registry: SchemaRegistryService) -> None:
    """Whatever the registry has."""
    registry.schemas |= {7: registered.AVRO, 8: Registered("AVRO", '"string"')}
    one = registered_decoder(registry, "avro")
    good = report(framed(7, avro(detection(detected_at=TEN_IN_PARIS, rssi=-50))))
    for _ in range(2):
        batch = await one.decode([good, report(framed(8, b"\x00")), good, report(framed(9, b""))])
        assert (len(batch.messages), len(batch.dead_letters)) == (2, 2)
    assert sorted(registry.requested) == ["/schemas/ids/7", "/schemas/ids/8", "/schemas/ids/9"]


async def test_an_unknown_schema_is_requested_again_after_a_minute(
    registry: SchemaRegistryService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.formats.registry._RETRY_UNREADABLE", 0.5)
    one = registered_decoder(registry, "avro")
    record = report(framed(7, avro(detection(detected_at=TEN_IN_PARIS, rssi=-50))))
    (letter,) = (await one.decode([record])).dead_letters
    assert "schema 7: it has no schema of this id" in letter.detail
    registry.schemas[7] = registered.AVRO
    assert (await one.decode([record])).messages == []
    await asyncio.sleep(0.5)
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
    assert (await decoded_detection(registry, "avro", framed(7, message))).key == (BEACON, 1, 42)
    assert registry.requested == ["/schemas/ids/7", "/subjects/a%20device/versions/3"]


MESSAGE = avro(detection(detected_at=datetime(2026, 11, 20, 9, 0, 0, 0, UTC), rssi=-50))


def events(*ids: int) -> Record:
    """A batch of CloudEvents, each with a message by one of these schemas."""
    return report(batch_of(framed(id_, MESSAGE) for id_ in ids), headers=BATCH)


async def test_a_batch_of_cloudevents_names_few_schemas(registry: SchemaRegistryService) -> None:
    """A record of a thousand ids would cause a thousand requests to the registry."""
    registry.schemas |= dict.fromkeys(range(1, 9), registered.AVRO)
    one = registered_decoder(registry, "cloudevents+avro")
    batch = await one.decode([events(*range(100, 1000)), events(*range(1, 10))])
    assert registry.requested == []
    assert {letter.detail for letter in batch.dead_letters} == {
        "the events of a record may name at most 8 schemas"
    }
    found = (await one.decode([events(*range(1, 9), 1, 1)])).messages
    assert [each.index for each in found] == [number * 2**32 for number in range(10)]
    assert len(registry.requested) == 8


CIRCLE = Registered("AVRO", '"A"', references=(("A", "a", 1),))
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 0}
NOWHERE = protobuf(position={"latitude": math.nan}, api_key="k", device={"udid": "d"})
LOCAL = {"type": "long", "logicalType": "local-timestamp-millis"}


def record_of(*types: Any) -> Registered:
    fields = [{"name": f"f{n}", "type": each} for n, each in enumerate(types)]
    return Registered("AVRO", json.dumps({"type": "record", "name": "R", "fields": fields}))


@pytest.mark.parametrize(
    ("format_", "schema", "message", "expected"),
    [
        ("avro", registered.AVRO, b"", "do not match it"),
        ("avro", registered.AVRO, avro(detection(detected_at=TEN_IN_PARIS)) + b"x", "left over"),
        ("avro", registered.AVRO, avro(detection(detected_at=TEN_IN_PARIS)), "one of proximity"),
        ("avro", Registered("AVRO", "{"), b"", "no valid Avro schema"),
        ("avro", record_of(DECIMAL), avro(b"\x01" * 1_000_000, "bytes"), "do not match it"),
        ("avro", CIRCLE, b"", "it needs more than 32 others"),
        ("avro", record_of(LOCAL), b"\x02", "no time zone"),
        ("protobuf", registered.PROTOBUF, b"", "cut off"),
        # A string of four gigabytes; groups within groups without end.
        ("protobuf", registered.PROTOBUF, b"\x02\x02\x0a\xff\xff\xff\xff\x0f", "do not match it"),
        ("protobuf", registered.PROTOBUF, b"\x02\x02" + b"\x4b" * 100_000, "do not match it"),
        ("protobuf", registered.PROTOBUF, b"\x00", "missing required field `device`"),
        ("protobuf", Registered("PROTOBUF", "syntax"), b"\x00", "no valid Protobuf schema"),
        ("protobuf", registered.PROTOBUF, NOWHERE, "at `$.position.latitude`"),
        ("json-schema", Registered("JSON", "{}"), b"{", "malformed_json"),
    ],
)
async def test_an_unreadable_schema_or_message_makes_a_dead_letter(
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
