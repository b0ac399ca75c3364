"""Kafka records as the consumer hands them out."""

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
    value: bytes | dict[str, Any] | None, *, offset: int = 7, key: bytes | None = b"device-1"
) -> ConsumerRecord[bytes, bytes]:
    """A record of the detections topic."""
    raw = orjson.dumps(value) if isinstance(value, dict) else value
    return ConsumerRecord(
        topic="proximity.detections",
        partition=3,
        offset=offset,
        timestamp=int(RECORD_TIME * 1000),
        timestamp_type=0,
        key=key,
        value=raw,
        checksum=None,
        serialized_key_size=-1,
        serialized_value_size=-1,
        headers=(),
    )
