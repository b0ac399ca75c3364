"""The detections: a steady stream from a thread of its own, each acknowledged and counted."""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import orjson
from confluent_kafka import KafkaError, Message, Producer

from benchmarks.installation.estate import Estate

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
    def flowing(self) -> Iterator["DetectionStream"]:
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
