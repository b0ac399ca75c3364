"""Kafka records as the consumer hands them out."""

from collections.abc import Sequence
from typing import Any

import orjson
from aiokafka import ConsumerRecord

UUID = "f7826da6-4fa2-4e98-8024-bc5b71e0893e"
RECORD_TIME = 1_795_200_000.5


def detection(**fields: Any) -> dict[str, Any]:
    """A detection that is right; fields given replace its own, None removes one."""
    message: dict[str, Any] = {
        "uuid": UUID,
        "major": 1,
        "minor": 42,
        "proximity": "near",
        "device": {"udid": "device-1"},
        "detected_at": "2026-11-20T10:00:00+0100",
    }
    message |= fields
    return {name: value for name, value in message.items() if value is not None}


def record(
    value: Any,
    *,
    topic: str = "proximity.detections",
    partition: int = 3,
    offset: int = 7,
    key: bytes | None = b"device-1",
    at: float = RECORD_TIME,
    headers: Sequence[tuple[str, bytes]] = (),
) -> "ConsumerRecord[bytes, bytes]":
    """A record whose `value` is in bytes, or goes as JSON."""
    raw = value if isinstance(value, bytes) or value is None else orjson.dumps(value)
    sizes = len(key or b""), len(raw or b"")
    at_ms = round(at * 1000)
    return ConsumerRecord(
        topic, partition, offset, at_ms, 0, key, raw, None, *sizes, tuple(headers)
    )
