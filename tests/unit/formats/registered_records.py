"""Decodes records whose schemas are in a registry."""

from datetime import UTC, datetime
from typing import Any

from engine.kafka.detection_decoder import DetectionDecoder
from tests.servers.schema_registry import SchemaRegistryService
from tests.unit.engine.records import UUID
from tests.unit.formats.records import decoder, report

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
