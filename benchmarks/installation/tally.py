"""Counts the outgoing messages as they arrive: each id once, however often it is repeated."""

import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.cimpl import Message

from benchmarks.installation.estate import Estate
from benchmarks.installation.recent import RecentIds
from benchmarks.installation.stream import PROBE, QUIET
from benchmarks.receiving import received
from engine.kafka.topics import Topics

_PIECE = 2000
_POLL_SECONDS = 0.1
_KEPT_LATENCIES = 10_000


class TopicTally:
    """Reads notifications, calls and dead letters in a thread.

    `plain`, `edited` and `calls` count messages by distinct id, `repeats` repeated ones; `open`
    has the calls of which nothing came yet. A call ends in a notification or a dead letter.
    """

    def __init__(self, kafka: str, topics: Topics, estate: Estate, partitions: int) -> None:
        self._topics = topics
        self._estate = estate
        self._seen = RecentIds()
        self._called = RecentIds()
        self._ended = RecentIds()
        self.plain = self.edited = self.calls = self.answered = self.given_up = self.repeats = 0
        self.unexpected: Counter[str] = Counter()
        self.open: dict[str, float] = {}
        self._early: set[str] = set()
        # When a notification came, and how long after its detection.
        self.latencies: deque[tuple[float, float]] = deque(maxlen=_KEPT_LATENCIES)
        self.titles: dict[str, float] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": kafka,
                "group.id": "installation",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 100,
                "log_level": QUIET,
            }
        )
        names = (topics.notifications, topics.connector_calls, topics.dead_letters)
        self._consumer.assign(
            [TopicPartition(name, number, 0) for name in names for number in range(partitions)]
        )

    @contextmanager
    def reading(self) -> Iterator["TopicTally"]:
        """Read within the context. Raises RuntimeError at its end if reading failed."""
        enough = threading.Event()
        thread = threading.Thread(target=self._read, args=(enough,), name="tally")
        thread.start()
        try:
            yield self
        finally:
            enough.set()
            thread.join()
            self._consumer.close()

    def take_latencies(self) -> list[float]:
        """The latencies since the last call, in order of size."""
        taken = [self.latencies.popleft()[1] for _ in range(len(self.latencies))]
        return sorted(taken)

    def _read(self, enough: threading.Event) -> None:
        while not enough.is_set():
            for message in received(self._consumer, most=_PIECE, seconds=_POLL_SECONDS):
                if message.error() is None:  # (librdkafka itself retries brokers that are down)
                    self._take(message)

    def _take(self, message: Message) -> None:
        now, topic = time.time(), message.topic()
        if topic == self._topics.dead_letters:
            self._dead_letter(message)
            return
        body = orjson.loads(message.value() or b"")
        if topic == self._topics.connector_calls:
            self._call(body["id"], now)
        else:
            self._notification(body, now)

    def _notification(self, body: dict[str, Any], now: float) -> None:
        if not self._seen.is_new(body["id"]):
            self.repeats += 1
            return
        campaign, udid = body["campaign"]["id"], body["device"]["udid"]
        if campaign in self._estate.requested:
            self.answered += 1
            self._end(body["id"])
        elif campaign in self._estate.plain:
            self.plain += 1
            if udid.startswith(PROBE):
                self.latencies.append((now, now - float(udid.rpartition(" ")[2])))
        elif campaign == self._estate.edited:
            self.edited += 1
            self.titles.setdefault(body["title"], now)

    def _call(self, id_: str, now: float) -> None:
        if not self._called.is_new(id_):
            self.repeats += 1
            return
        self.calls += 1
        if id_ in self._early:
            self._early.discard(id_)
        else:
            self.open[id_] = now

    def _dead_letter(self, message: Message) -> None:
        headers = {name: value.decode() for name, value in _pairs(message)}
        if headers["topic"] != self._topics.connector_calls:
            self.unexpected[f"{headers['topic']}: {headers['reason']}"] += 1
            return
        id_ = orjson.loads(message.value() or b"")["id"]
        if self._end(id_):
            self.given_up += 1

    def _end(self, id_: str) -> bool:
        """A call has ended. Topics are read independently, so its end may be read first."""
        if not self._ended.is_new(id_):
            self.repeats += 1
            return False
        if self.open.pop(id_, None) is None:
            self._early.add(id_)
        return True


def _pairs(message: Message) -> list[tuple[str, bytes]]:
    """The headers: confluent-kafka gives them in this form."""
    found: Any = message.headers()
    return list(found or [])
