"""The topics of a run: filled with detections, and read for the resulting messages."""

import contextlib
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import orjson
from confluent_kafka import Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # imported there by name
    AdminClient,
    OffsetSpec,
)
from confluent_kafka.cimpl import NewTopic

from benchmarks.arrivals import Arrivals, is_notification
from benchmarks.catalog import number_of
from benchmarks.publishing import QUIET, publish_all
from benchmarks.workloads import Record
from engine.kafka.topics import Topics

PARTITIONS = 4
_SECONDS = 60.0
_POLL_SECONDS = 0.2  # a list that is not full comes at its end only

Ends = dict[int, int]


class Notified(NamedTuple):
    """The fields of a notification that outcomes are compared by."""

    udid: str
    beacon: int
    campaign: int
    id: str


class BenchTopics:
    """The five topics of the product under one prefix."""

    def __init__(self, kafka: str, prefix: str, *, by_mention: bool) -> None:
        """`by_mention`: the embedded broker creates topics so, and has no request for it."""
        self._kafka = kafka
        self.prefix = prefix
        self.names = Topics.named(prefix)
        self._admin = AdminClient({"bootstrap.servers": kafka, "log_level": QUIET})
        if by_mention:
            for name in self.names.all():
                self._admin.list_topics(name, timeout=_SECONDS)
            return
        wanted = [NewTopic(name, PARTITIONS, 1) for name in self.names.all()]
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
                    if is_notification(message):
                        found.append(_notified(message.value() or b""))
                    else:
                        left.discard(message.partition() or 0)
        finally:
            consumer.close()
        return found

    @contextlib.contextmanager
    def arrivals(self, begins: Ends) -> Iterator[Arrivals]:
        """Counts the notifications since `begins`, of transactions that were committed."""
        consumer = self._consumer()
        try:
            yield Arrivals(consumer, self.names.notifications, begins)
        finally:
            consumer.close()

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


def _notified(value: bytes) -> Notified:
    decoded = orjson.loads(value)
    beacon = number_of(decoded["beacon"]["major"], decoded["beacon"]["minor"])
    return Notified(decoded["device"]["udid"], beacon, decoded["campaign"]["id"], decoded["id"])
