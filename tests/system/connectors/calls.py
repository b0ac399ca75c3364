"""Publishes records of connector-calls, as the trigger writes them."""

import json
import time
import uuid
from collections.abc import Iterable
from functools import cache
from typing import Any

import msgspec
from aiokafka import AIOKafkaProducer

from catalog.secrets import open_cipher
from engine.kafka.messages import (
    CompanyReference,
    ConnectorCall,
    KnownDevice,
    format_instant,
)
from tests.connectors.calls import connector_endpoint, message
from tests.system.connectors.customers import SECRET_KEY


def call(
    url: str, udid: str, *, company: int = 1, age: float = 0.0, **fields: Any
) -> ConnectorCall:
    """A call about a detection `age` seconds ago."""
    at = format_instant(time.time() - age)
    values: dict[str, Any] = {
        "id": str(uuid.uuid4()),
        "company": CompanyReference(company),
        "device": KnownDevice(udid=udid),
        "detected_at": at,
        "triggered_at": at,
        "expires_at": at,
        "connector": connector_endpoint(url=url, parameters=_no_parameters()),
    }
    return message(**(values | fields))


@cache
def _no_parameters() -> str:
    return open_cipher(SECRET_KEY).encrypt("[]")


async def publish(bootstrap: str, topic: str, values: Iterable[ConnectorCall | bytes]) -> None:
    """Publish the calls, keyed by device."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
        for value in values:
            raw = value if isinstance(value, bytes) else msgspec.json.encode(value)
            key = None if isinstance(value, bytes) else value.device.udid.encode()
            await producer.send(topic, raw, key=key)
        await producer.flush()


def bodies(records: Iterable[Any]) -> list[dict[str, Any]]:
    """The decoded records."""
    return [json.loads(record.value or b"") for record in records]
