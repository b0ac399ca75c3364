"""The detections: a steady stream from a thread of its own, each acknowledged and counted."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

import orjson
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from benchmarks.load import received
from engine.kafka.topics import Topics

if TYPE_CHECKING:
    from benchmarks.installation import Estate

_TICK = 0.02
_PROBES_A_SECOND = 2
_FLUSH_SECONDS = 120.0
PROBE = "probe "
# For librdkafka, which logs many times a second that a broker is down.
QUIET = 2


class DetectionStream:
    """Publishes on the topic of detections. The part `share` is at the partner's beacons.

    A few devices a second are new ones that carry the time in their name (`PROBE`): by them
    latencies are measured.
    """

    def __init__(
        self, kafka: str, topic: str, estate: Estate, *, seed: int, share: float, devices: int
    ) -> None:
        self._topic = topic
        self._dice = random.Random(seed)
        self._share = share
        self._hall = [_spot(*triple) for triple in estate.hall]
        self._partners = [_spot(*triple) for triple in estate.partners]
        self._devices = [f"phone {number}" for number in range(devices)]
        self._probes = count()
        self.rate = 0.0
        self.hall = self.partners = self.lost = 0
        self._producer = Producer(
            {
                "bootstrap.servers": kafka,
                "enable.idempotence": True,
                "linger.ms": 20,
                "partitioner": "murmur2_random",
                "message.timeout.ms": 600_000,  # longer than any outage of a run
                "queue.buffering.max.messages": 1_000_000,
                "log_level": QUIET,
            }
        )

    @contextmanager
    def flowing(self) -> Iterator[DetectionStream]:
        """`rate` detections a second within the context (it may be changed); all are acknowledged
        at its end."""
        enough = threading.Event()
        thread = threading.Thread(target=self._flow, args=(enough,), name="detections")
        thread.start()
        try:
            yield self
        finally:
            enough.set()
            thread.join()
            self.flush()

    def burst(self, detections: int) -> None:
        """Publish a burst of `count`, and wait until it is acknowledged."""
        for _ in range(detections):
            self._publish()
        self.flush()

    def flush(self) -> None:
        """Wait until the broker has acknowledged every message; the others count as lost."""
        self.lost += self._producer.flush(_FLUSH_SECONDS)

    @property
    def published(self) -> int:
        """How many detections the broker has acknowledged."""
        return self.hall + self.partners

    def _flow(self, enough: threading.Event) -> None:
        due, probes_due, last = 0.0, 0.0, time.monotonic()
        while not enough.wait(_TICK):
            now = time.monotonic()
            due += (now - last) * self.rate
            probes_due += (now - last) * min(_PROBES_A_SECOND, self.rate)
            last = now
            for _ in range(int(due)):
                self._publish(is_probe=probes_due >= 1)
                probes_due -= probes_due >= 1
            due -= int(due)
            self._producer.poll(0)

    def _publish(self, *, is_probe: bool = False) -> None:
        dice = self._dice
        is_partners = not is_probe and dice.random() < self._share
        udid = dice.choice(self._devices)
        if is_probe:
            udid = f"{PROBE}{next(self._probes)} {time.time():.3f}"
        spot = dice.choice(self._partners if is_partners else self._hall)
        self._producer.produce(
            self._topic,
            value=spot + orjson.dumps(udid) + b"}}",
            key=udid.encode(),
            on_delivery=self._of_partners if is_partners else self._of_hall,
        )

    def _of_hall(self, error: KafkaError | None, _message: Message) -> None:
        self.hall += error is None
        self.lost += error is not None

    def _of_partners(self, error: KafkaError | None, _message: Message) -> None:
        self.partners += error is None
        self.lost += error is not None


def _spot(uuid: str, major: int, minor: int) -> bytes:
    """A detection up to its device's name."""
    body = {"uuid": uuid, "major": major, "minor": minor, "proximity": "immediate"}
    return orjson.dumps(body)[:-1] + b',"device":{"udid":'


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
        self._seen = set[str]()
        self._called = set[str]()
        self._ended = set[str]()
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
    def reading(self) -> Iterator[TopicTally]:
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
        if not _added(self._seen, body["id"]):
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
        if not _added(self._called, id_):
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
        if not _added(self._ended, id_):
            self.repeats += 1
            return False
        if self.open.pop(id_, None) is None:
            self._early.add(id_)
        return True


def _pairs(message: Message) -> list[tuple[str, bytes]]:
    """The headers: confluent-kafka gives them in this form."""
    found: Any = message.headers()
    return list(found or [])


def _added(ids: set[str], id_: str) -> bool:
    """Add an id. Returns whether it is new."""
    before = len(ids)
    ids.add(id_)
    return len(ids) > before
