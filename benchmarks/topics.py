"""The topics of a run: filled with detections, and read for the resulting messages."""

import time
from collections.abc import Iterable

import orjson
from confluent_kafka import Consumer, IsolationLevel, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # imported there by name
    AdminClient,
    OffsetSpec,
)
from confluent_kafka.cimpl import NewTopic

from benchmarks.workloads import Record
from engine.kafka.topics import Topics

QUIET = 2  # log level of librdkafka: a server that is stopped at the end is expected
_QUEUE = 1_000_000  # messages
_ROOM_CHECK_RECORDS = 10_000
PARTITIONS = 4
_SECONDS = 60.0
_POLL_SECONDS = 0.2  # a list that is not full comes at its end only

Ends = dict[int, int]


Notified = tuple[str, int, int]  # udid, number of the place, campaign


class BenchTopics:
    """The topics of the product under one prefix."""

    def __init__(self, kafka: str, prefix: str, partitions: int = PARTITIONS) -> None:
        self._kafka = kafka
        self.prefix = prefix
        self.names = Topics.of(prefix)
        self._admin = AdminClient({"bootstrap.servers": kafka, "log_level": QUIET})
        wanted = [NewTopic(name, partitions, 1) for name in self.names]
        for made in self._admin.create_topics(wanted).values():
            made.result(_SECONDS)

    def publish(self, records: Iterable[Record]) -> None:
        """Publish detections as a pipeline would."""
        publish_all(self._kafka, self.names.detections, records)

    def ends(self) -> Ends:
        """Where each partition of the notifications ends now, for those who read committed."""
        last = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        requested = {
            TopicPartition(self.names.notifications, each): last for each in range(PARTITIONS)
        }
        found = self._admin.list_offsets(
            requested, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_SECONDS
        )
        return {place.partition: future.result().offset for place, future in found.items()}

    def notified(self, begins: Ends) -> list[Notified]:
        """The notifications since `begins`, of transactions that were committed.

        Raises SystemExit if a minute brings none.
        """
        consumer = self._consumer()
        consumer.assign(
            [TopicPartition(self.names.notifications, *begin) for begin in begins.items()]
        )
        found: list[Notified] = []
        left = set(begins)
        give_up = time.monotonic() + _SECONDS
        try:
            while left:
                messages = consumer.consume(5000, _POLL_SECONDS)
                if messages:
                    give_up = time.monotonic() + _SECONDS
                elif time.monotonic() > give_up:
                    raise SystemExit("the notifications could not be read")
                for message in messages:
                    error = message.error()
                    if error is None:
                        body = orjson.loads(message.value() or b"")
                        device, campaign = body["device"], body["campaign"]
                        place = body.get("beacon") or body.get("geofence") or body["nfc"]
                        number = int(place["name"].rpartition(" ")[2])
                        found.append((device["udid"], number, campaign["id"]))
                    elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its name
                        left.discard(message.partition() or 0)
                    else:
                        raise SystemExit(f"the notifications could not be read: {error}")
        finally:
            consumer.close()
        return found

    def _consumer(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._kafka,
                "log_level": QUIET,
                "group.id": "benchmark",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
            }
        )


def publish_all(kafka: str, topic: str, records: Iterable[tuple[bytes, bytes]]) -> None:
    """Publish all records."""
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
