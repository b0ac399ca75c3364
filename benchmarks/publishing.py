"""Publishes records to a topic, as an ingestion pipeline would."""

from collections.abc import Iterable

from confluent_kafka import Producer

QUIET = 2  # log level of librdkafka: a server that is stopped at the end is expected
_QUEUE = 1_000_000  # messages
_ROOM_CHECK_RECORDS = 10_000


def publish_all(kafka: str, topic: str, records: Iterable[tuple[bytes, bytes]]) -> None:
    """Publish all records, compressed (the embedded broker keeps 5 MB of a partition)."""
    producer = Producer(
        {
            "bootstrap.servers": kafka,
            "log_level": QUIET,
            "compression.type": "lz4",
            "batch.size": 1_000_000,
            "linger.ms": 50,
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": _QUEUE,
        }
    )
    for number, (key, value) in enumerate(records):
        if not number % _ROOM_CHECK_RECORDS:
            _make_room(producer)
        producer.produce(topic, value=value, key=key)
    left = producer.flush(60)
    if left:
        raise SystemExit(f"{left} records could not be published")


def _make_room(producer: Producer) -> None:
    producer.poll(0)
    while len(producer) > _QUEUE // 2:
        producer.poll(0.1)
