"""Publishes very many messages quickly."""

import asyncio
from collections.abc import Iterable

from confluent_kafka import Producer

from tests.recorder.flood import Message
from tests.system.topics import TopicSet


async def publish(topics: TopicSet, messages: Iterable[Message]) -> int:
    """Publish all, keyed as a pipeline would. Returns their number."""
    return await asyncio.to_thread(_publish, topics, messages)


def _publish(topics: TopicSet, messages: Iterable[Message]) -> int:
    own = {"enable.idempotence": True, "linger.ms": 20, "partitioner": "murmur2_random"}
    producer, count = Producer({"bootstrap.servers": topics.bootstrap, **own}), 0
    for topic, key, value, arrived_ms in messages:
        producer.produce(topics.name(topic), value, key, timestamp=arrived_ms)
        count += 1
    assert producer.flush(200) == 0
    return count
