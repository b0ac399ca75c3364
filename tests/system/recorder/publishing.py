"""Publishing very many records quickly, through librdkafka."""

import asyncio
from collections.abc import Iterable

from confluent_kafka import KafkaError, Producer

from tests.recorder.flood import Message

_DEADLINE = 60.0
_MOST_QUEUED = 200_000


async def publish(bootstrap: str, prefix: str, messages: Iterable[Message]) -> int:
    """Publish all messages once, keyed as a pipeline would. Returns their number."""
    return await asyncio.to_thread(_publish, bootstrap, prefix, messages)


def _publish(bootstrap: str, prefix: str, messages: Iterable[Message]) -> int:
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 20,
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": 2 * _MOST_QUEUED,
        }
    )
    count = 0
    for topic, key, value, arrived_ms in messages:
        producer.produce(prefix + topic, value, key, on_delivery=delivered, timestamp=arrived_ms)
        count += 1
        if len(producer) > _MOST_QUEUED:
            producer.flush(_DEADLINE)
    assert producer.flush(_DEADLINE) == 0
    assert not failures, failures[0]
    return count
