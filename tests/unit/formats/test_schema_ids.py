"""How a record names its schema, in front of the message or in a header; and how many it may."""

import base64
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from engine.kafka.decoding import Record
from engine.kafka.formats.registered import SCHEMA_HEADER
from tests.servers.schema_registry import SchemaRegistryService
from tests.unit.engine.records import UUID as BEACON
from tests.unit.formats import registered
from tests.unit.formats.records import report
from tests.unit.formats.registered import avro, detection, framed, header, protobuf
from tests.unit.formats.registered_records import (
    PROTO,
    decoded_detection,
    registered_decoder,
)

TRIPLE = (BEACON, 1, 42)
GUID = UUID("89791762-2336-4186-9674-299b90a802e2")
MESSAGE = avro(detection(detected_at=datetime(2026, 11, 20, 9, 0, 0, 0, UTC), rssi=-50))


@pytest.mark.parametrize("name", [7, GUID])
async def test_a_schema_that_a_header_names(registry: SchemaRegistryService, name: Any) -> None:
    """As Confluent's HeaderSchemaIdSerializer writes it: a byte of version, and id or GUID."""
    registry.schemas[name] = registered.AVRO
    record = report(MESSAGE, headers=[header(name)])
    batch = await registered_decoder(registry, "avro").decode([record, record])
    assert [found.key for found in batch.messages] == [TRIPLE] * 2
    assert registry.requested == [f"/schemas/{'ids' if name == 7 else 'guids'}/{name}"]


async def test_a_guid_in_front_of_the_message(registry: SchemaRegistryService) -> None:
    registry.schemas[GUID] = registered.AVRO
    assert (await decoded_detection(registry, "avro", b"\1" + GUID.bytes + MESSAGE)).key == TRIPLE


async def test_the_indexes_of_protobuf_stand_in_the_header_too(
    registry: SchemaRegistryService,
) -> None:
    registry.schemas[GUID] = registered.PROTOBUF
    message = protobuf(**PROTO, rssi=-50).removeprefix(registered.SECOND)
    record = report(message, headers=[header(GUID, registered.SECOND)])
    (found,) = (await registered_decoder(registry, "protobuf").decode([record])).messages
    assert found.key == TRIPLE
    assert "?format=serialized" in registry.service.received[0].target


@pytest.mark.parametrize(
    ("format_", "framing", "expected"),
    [
        ("avro", header(7), "schema 7: "),  # the value's first five bytes are the message's
        ("avro", header(GUID), f"schema {GUID} of the registry: it has no schema of this id"),
        ("avro", header(7, b"\0"), "nothing must follow the schema's id"),
        ("protobuf", header(7), "the indexes of a type must follow the schema's id"),
        ("avro", (SCHEMA_HEADER, b""), f"header {SCHEMA_HEADER} begins with neither"),
        ("avro", (SCHEMA_HEADER, b"\2" + b"\0" * 16), "begins with neither a zero nor a one"),
        ("avro", (SCHEMA_HEADER, b"\1" + b"\0" * 15), "is too short for a schema's id"),
        ("avro", (SCHEMA_HEADER, b"7"), "begins with neither a zero nor a one"),
    ],
)
async def test_a_header_that_names_no_schema(
    registry: SchemaRegistryService, format_: str, framing: tuple[str, bytes], expected: str
) -> None:
    registry.schemas[7] = registered.AVRO
    value = framed(7, MESSAGE)
    batch = await registered_decoder(registry, format_).decode([report(value, headers=[framing])])
    (letter,) = batch.dead_letters
    assert expected in letter.detail


def events(*ids: int) -> Record:
    """A batch of CloudEvents, each with a message by one of these schemas."""
    whole = {"specversion": "1.0", "id": "1", "source": "/", "type": "t"}
    data = [base64.b64encode(framed(id_, MESSAGE)).decode() for id_ in ids]
    batch = [whole | {"data_base64": each} for each in data]
    return report(batch, headers=[("content-type", b"application/cloudevents-batch+json")])


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


async def test_large_schemas_are_forgotten_first(
    registry: SchemaRegistryService, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len(registered.AVRO.text)
    monkeypatch.setattr("engine.kafka.schema_registry._MOST_BYTES", 2 * size)
    registry.schemas |= dict.fromkeys(range(1, 6), registered.AVRO)
    one = registered_decoder(registry, "avro")
    known = one._read_report._registry._schemas  # type: ignore[attr-defined]
    compiled = one._read_report._compiled  # type: ignore[attr-defined]
    # All schemas of a batch are there while it is read.
    batch = await one.decode([report(framed(id_, MESSAGE)) for id_ in range(1, 6)])
    assert (len(batch.messages), list(known)) == (5, [1, 2, 3, 4, 5])
    await one.decode([report(framed(5, MESSAGE))])
    assert list(known) == [4, 5]
    assert sorted(compiled) == [4, 5]
    assert len(registry.requested) == 5
