"""Sends a schedule of detections, and reads their notifications."""

import gc
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import orjson
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from benchmarks.load.latency import Latencies
from benchmarks.load.traffic import Meeting, Place, Traffic
from benchmarks.receiving import received
from engine.kafka.timestamps import format_instant

_SECONDS = 30.0
_POLL_SECONDS = 0.05
_POLL_EVERY = 64
_SHORTEST_SLEEP = 0.0002
_BEGIN_SECONDS = 0.2
_AT_ONCE = 500

Key = tuple[str, Place]


class OpenLoop:
    """A producer that never waits, and a consumer in its own thread."""

    def __init__(
        self, *, kafka: Mapping[str, Any], detections: str, notifications: str, word: str = ""
    ) -> None:
        """`kafka` are properties of librdkafka. `word` is the prefix of udids, so that no claims
        of an earlier run apply."""
        self.latencies, self.late = Latencies(), Latencies()
        self.sent = self.refused = self.failed = self.repeats = self.foreign = 0
        self._word = word or f"load-{secrets.token_hex(4)}"
        self._topic = detections
        self._due: dict[Key, float] = {}
        self._answered: set[Key] = set()
        self._ids: set[str] = set()
        self._producer = Producer(
            {
                "partitioner": "murmur2_random",
                "linger.ms": 5,  # as pipelines publish; it is a part of the latency
                "queue.buffering.max.messages": 1_000_000,
                "delivery.report.only.error": True,
                **kafka,
            }
        )
        self._seen_at = time.perf_counter()
        self._stop = threading.Event()
        self._consumer = _at_the_end(kafka, notifications)
        self._thread = threading.Thread(target=self._receive, daemon=True)

    @property
    def meetings(self) -> int:
        """The sent detections that are valid and of known beacons."""
        return len(self._due)

    @property
    def unanswered(self) -> int:
        """The sent detections without a notification."""
        return len(self._due) - len(self._answered)

    def run(self, traffic: Traffic, *, settle: float) -> float:
        """Send all, then wait until nothing has come for `settle` seconds, or all were answered.
        The seconds that sending took."""
        self._thread.start()
        with _no_collections():
            begin = time.perf_counter() + _BEGIN_SECONDS
            for meeting in traffic.meetings():
                self._wait(begin + meeting.at)
                self._send(meeting, begin + meeting.at)
            took = time.perf_counter() - begin
            self._producer.flush(_SECONDS)
            while self.unanswered and time.perf_counter() - self._seen_at < settle:
                time.sleep(_POLL_SECONDS)
        self._stop.set()
        self._thread.join(_SECONDS)
        return took

    def _wait(self, due: float) -> None:
        left = due - time.perf_counter()
        if left > _SHORTEST_SLEEP or not self.sent % _POLL_EVERY:
            self._producer.poll(0)
            left = due - time.perf_counter()
        if left > _SHORTEST_SLEEP:
            time.sleep(left)
        self.late.record(max(0.0, time.perf_counter() - due))

    def _send(self, meeting: Meeting, due: float) -> None:
        udid = f"{self._word}-{meeting.device:08d}"
        if meeting.known and not meeting.malformed:
            self._due.setdefault((udid, meeting.place), due)
        self._seen_at = max(self._seen_at, due)
        try:
            value = _detection(udid, meeting)
            self._producer.produce(self._topic, value, udid, on_delivery=self._not_delivered)
        except BufferError:
            # The brokers are slower than the schedule; who waited for them would spare them.
            self.refused += 1
        self.sent += 1

    def _not_delivered(self, _error: Any, _message: Any) -> None:
        self.failed += 1

    def _receive(self) -> None:
        try:
            while not self._stop.is_set():
                messages = received(self._consumer, most=_AT_ONCE, seconds=_POLL_SECONDS)
                now = time.perf_counter()
                for message in messages:
                    error = message.error()
                    if error is None:
                        self._note(message.value() or b"", now)
                    elif error.fatal():
                        raise KafkaException(error)
        finally:
            self._consumer.close()

    def _note(self, value: bytes, now: float) -> None:
        decoded = orjson.loads(value)
        beacon = decoded["beacon"]
        key = (decoded["device"]["udid"], Place(beacon["uuid"], beacon["major"], beacon["minor"]))
        due = self._due.get(key)
        if due is None:
            self.foreign += 1
        elif decoded["id"] in self._ids:
            self.repeats += 1
        else:
            self._ids.add(decoded["id"])
            self._answered.add(key)
            self.latencies.record(now - due)
            self._seen_at = now


@contextmanager
def _no_collections() -> Iterator[None]:
    """Without the garbage collector, which would stop sender and receiver for 50 ms at a time: that
    would be measured as latency. A run makes no cycles."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _detection(udid: str, meeting: Meeting) -> bytes:
    detection = orjson.dumps(
        {
            **meeting.place._asdict(),
            "proximity": "near",
            "device": {"udid": udid, "name": "android", "version": "14", "model": "Pixel 8"},
            "detected_at": format_instant(time.time()),
        }
    )
    return detection[: len(detection) // 2] if meeting.malformed else detection


def _at_the_end(kafka: Mapping[str, Any], topic: str) -> Consumer:
    """A consumer of the messages from now on. Raises KafkaException."""
    consumer = Consumer(
        {
            "group.id": f"load-{secrets.token_hex(4)}",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
            **kafka,
        }
    )
    found = consumer.list_topics(topic, timeout=_SECONDS).topics[topic]
    if found.error is not None or not found.partitions:
        raise KafkaException(found.error or KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    places = []
    for number in found.partitions:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=_SECONDS)
        places.append(TopicPartition(topic, number, end))
    consumer.assign(places)
    return consumer
