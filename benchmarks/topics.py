"""The topics of a run: filled with detections, and read for what came of them."""

import time
from collections.abc import Iterable

import orjson
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.workloads import Record
from engine.kafka.topics import Topics

PARTITIONS = 4
_SECONDS = 60.0
_POLL_SECONDS = 0.2  # a list that is not full comes at its end only

Ends = dict[int, int]


class BenchTopics:
    """The five topics of the product under one prefix."""

    def __init__(self, kafka: str, prefix: str, *, by_mention: bool) -> None:
        """`by_mention`: the embedded broker makes topics so, and does not answer who asks it to."""
        self._kafka = kafka
        self.names = Topics.named(prefix)
        admin = AdminClient({"bootstrap.servers": kafka})
        if by_mention:
            for name in self.names.all():
                admin.list_topics(name, timeout=_SECONDS)
            return
        wanted = [NewTopic(name, PARTITIONS, 1) for name in self.names.all()]
        for made in admin.create_topics(wanted).values():
            made.result(_SECONDS)

    def publish(self, records: Iterable[Record]) -> None:
        """As a pipeline would: keyed by device, compressed (the embedded broker keeps 5 MB)."""
        producer = Producer(
            {
                "bootstrap.servers": self._kafka,
                "compression.type": "lz4",
                "batch.size": 1_000_000,
                "linger.ms": 50,
                "partitioner": "murmur2_random",
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        for key, value in records:
            producer.produce(self.names.detections, value=value, key=key)
        left = producer.flush(_SECONDS)
        if left:
            raise SystemExit(f"{left} records could not be published")

    def ends(self) -> Ends:
        """Where each partition of the notifications ends now."""
        consumer = self._consumer()
        try:
            return {
                partition: consumer.get_watermark_offsets(
                    TopicPartition(self.names.notifications, partition), _SECONDS
                )[1]
                for partition in range(PARTITIONS)
            }
        finally:
            consumer.close()

    def notified(self, begins: Ends) -> list[tuple[str, int, int]]:
        """Device, minor of the beacon and campaign of each notification since `begins`."""
        ends = self.ends()
        left = {partition for partition in ends if begins[partition] < ends[partition]}
        consumer = self._consumer()
        consumer.assign(
            [TopicPartition(self.names.notifications, each, begins[each]) for each in left]
        )
        found = []
        give_up = time.monotonic() + _SECONDS
        try:
            while left:
                messages = consumer.consume(5000, _POLL_SECONDS)
                if time.monotonic() > give_up:
                    raise SystemExit("the notifications could not be read")
                for message in messages:
                    said = orjson.loads(message.value() or b"")
                    found.append(
                        (said["device"]["udid"], said["beacon"]["minor"], said["campaign"]["id"])
                    )
                    if (message.offset() or 0) + 1 >= ends[message.partition() or 0]:
                        left.discard(message.partition() or 0)
        finally:
            consumer.close()
        return found

    def _consumer(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._kafka,
                "group.id": "benchmark",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
