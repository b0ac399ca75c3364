"""`python -m benchmarks.load`: publishes detections at a fixed rate (open loop), and measures the
time until their notifications arrive."""

from __future__ import annotations

import argparse
import gc
import json
import random
import secrets
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import orjson
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from hdrh.histogram import HdrHistogram
from rich.console import Console

from benchmarks.catalog import UUID, place_of
from benchmarks.machine import MachineWatch
from benchmarks.report import Sheet, add_json, finish
from engine.kafka.messages import format_instant

_LATE_MS = 5.0


def main() -> None:
    """Parse the arguments, send, print the results."""
    arguments = _arguments()
    console, watch = Console(), MachineWatch()
    traffic = _traffic(arguments)
    try:
        loop = OpenLoop(
            kafka={"bootstrap.servers": arguments.kafka, **dict(arguments.property)},
            detections=f"{arguments.topic_prefix}detections",
            notifications=f"{arguments.topic_prefix}notifications",
        )
        took = loop.run(traffic)
    except KafkaException as error:
        sys.exit(f"{arguments.kafka}: {error}")
    notes = []
    if loop.late.milliseconds(99.0) > _LATE_MS:
        notes.append(
            "The generator itself was late: run it on a machine of its own, or several of them."
        )
    rounds = {"latency": loop.latencies.as_json(), "late": loop.late.as_json()}
    finish(console, arguments, watch, [_sheet(loop, took)], rounds, notes)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("--kafka", default="localhost:9092", help="bootstrap servers")
    parser.add_argument(
        "-X",
        "--property",
        action="append",
        default=[],
        type=_property,
        metavar="NAME=VALUE",
        help="of librdkafka, such as security.protocol=SASL_SSL",
    )
    parser.add_argument("--topic-prefix", default="proximity.")
    parser.add_argument("--rate", type=float, default=1000.0, help="detections a second")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument(
        "--pattern", choices=["dwell", "sweep", "roam", "herd"], default="dwell", help="see README"
    )
    parser.add_argument("--devices", type=int, default=10_000)
    beacons = parser.add_mutually_exclusive_group()
    beacons.add_argument("--catalog", type=Path, help="a file of `proximity catalog load`")
    beacons.add_argument("--beacons", type=int, default=1000, help="of a benchmark's own catalog")
    add_json(parser)
    return parser.parse_args()


def _property(written: str) -> tuple[str, str]:
    name, found, value = written.partition("=")
    if not found:
        raise argparse.ArgumentTypeError(f"{written!r} is not NAME=VALUE")
    return name, value


def _traffic(arguments: argparse.Namespace) -> Traffic:
    catalog: Path | None = arguments.catalog
    beacons = of_catalog(catalog) if catalog is not None else numbered(arguments.beacons)
    if not beacons:
        sys.exit(f"{catalog}: no beacons")
    return Traffic(
        rate=arguments.rate,
        seconds=arguments.seconds,
        beacons=beacons,
        pattern=arguments.pattern,
        devices=arguments.devices,
    )


def _sheet(loop: OpenLoop, took: float) -> Sheet:
    percentiles = {f"p{each:g}": loop.latencies.milliseconds(each) for each in PERCENTILES}
    percentiles["most"] = loop.latencies.milliseconds(100.0)
    late = f"{loop.late.milliseconds(99.0):,.1f} ms (most {loop.late.milliseconds(100.0):,.1f})"
    counts = {
        "notifications": loop.latencies.count,
        "detections sent": loop.sent,
        "of them refused by the full queue": loop.refused,
        "not delivered": loop.failed,
        "meetings without a notification": loop.unanswered,
        "notifications again, same id": loop.repeats,
        "notifications of others": loop.foreign,
        "detections a second, reached": round(loop.sent / max(took, 0.001)),
    }
    rows = [[f"{name}, from due to seen", f"{each:,.1f} ms"] for name, each in percentiles.items()]
    rows += [[name, f"{count:,}"] for name, count in counts.items()]
    return Sheet("Load and latency", ["", ""], [*rows, ["the generator late, p99", late]])


_SECONDS = 30.0
_SETTLE_SECONDS = 10.0
_POLL_SECONDS = 0.05
_POLL_EVERY = 64
_SHORTEST_SLEEP = 0.0002
_BEGIN_SECONDS = 0.2
_AT_ONCE = 500

Key = tuple[str, "Place"]


class OpenLoop:
    """A producer that never waits, and a consumer in its own thread."""

    def __init__(self, *, kafka: Mapping[str, Any], detections: str, notifications: str) -> None:
        """`kafka` are properties of librdkafka."""
        self.latencies, self.late = Latencies(), Latencies()
        self.sent = self.refused = self.failed = self.repeats = self.foreign = 0
        self._word = f"load-{secrets.token_hex(4)}"  # no claims of an earlier run apply
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
    def unanswered(self) -> int:
        """The sent detections without a notification."""
        return len(self._due) - len(self._answered)

    def run(self, traffic: Traffic) -> float:
        """Send all, then wait until nothing has come for ten seconds, or all were answered.
        The seconds that sending took."""
        self._thread.start()
        with _no_collections():
            begin = time.perf_counter() + _BEGIN_SECONDS
            for meeting in traffic.meetings():
                self._wait(begin + meeting.at)
                self._send(meeting, begin + meeting.at)
            took = time.perf_counter() - begin
            self._producer.flush(_SECONDS)
            while self.unanswered and time.perf_counter() - self._seen_at < _SETTLE_SECONDS:
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
        self._due.setdefault((udid, meeting.place), due)
        self._seen_at = max(self._seen_at, due)
        try:
            value = _detection(udid, meeting.place)
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


def _detection(udid: str, place: Place) -> bytes:
    return orjson.dumps(
        {
            **place._asdict(),
            "proximity": "near",
            "device": {"udid": udid, "name": "android", "version": "14", "model": "Pixel 8"},
            "detected_at": format_instant(time.time()),
        }
    )


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


PERCENTILES = (50.0, 90.0, 99.0, 99.9)
_MOST = 3_600_000_000
_DIGITS = 3
_MICROSECONDS = 1e6


class Latencies:
    """Latencies from the scheduled time of a detection, so that time in a slow generator counts
    (no coordinated omission)."""

    def __init__(self) -> None:
        self._histogram = HdrHistogram(1, _MOST, _DIGITS)

    def record(self, seconds: float) -> None:
        """Add a latency."""
        self._histogram.record_value(min(max(int(seconds * _MICROSECONDS), 1), _MOST))

    @property
    def count(self) -> int:
        """The number of latencies."""
        return int(self._histogram.get_total_count())

    def milliseconds(self, percentile: float) -> float:
        """A percentile; 100 is the maximum."""
        return float(self._histogram.get_value_at_percentile(percentile)) / 1000

    def as_json(self) -> dict[str, float]:
        """Percentiles in milliseconds."""
        of = {f"p{each:g}": self.milliseconds(each) for each in PERCENTILES}
        return {**of, "max": self.milliseconds(100.0), "count": self.count}


Pattern = Literal["dwell", "sweep", "roam", "herd"]
_SEED = 20261122


class Place(NamedTuple):
    """The triple of a beacon."""

    uuid: str
    major: int
    minor: int


class Meeting(NamedTuple):
    """A detection to send `at` seconds after the beginning."""

    at: float
    device: int
    place: Place


@dataclass(frozen=True)
class Traffic:
    """`rate` detections a second for `seconds`.

    dwell: `devices` stay at a beacon each. sweep: a new device each time. roam: `devices` are at
    any beacon each time. herd: all `devices` enter within the first second, and then dwell.
    """

    rate: float
    seconds: float
    beacons: list[Place]
    pattern: Pattern = "dwell"
    devices: int = 10_000

    def meetings(self) -> Iterator[Meeting]:
        """All detections in order of time; the same parameters give the same detections."""
        draw, beacons, begin = random.Random(_SEED), self.beacons, 0.0
        homes = [draw.choice(beacons) for _ in range(self.devices)]
        if self.pattern == "herd":
            begin = 1.0
            for device, home in enumerate(homes):
                yield Meeting(device / self.devices, device, home)
        for number in range(round((self.seconds - begin) * self.rate)):
            at = begin + number / self.rate
            if self.pattern == "sweep":
                yield Meeting(at, number, draw.choice(beacons))
                continue
            device = draw.randrange(self.devices)
            yield Meeting(
                at, device, draw.choice(beacons) if self.pattern == "roam" else homes[device]
            )


def numbered(count: int) -> list[Place]:
    """The beacons of the catalogs that benchmarks make."""
    return [Place(UUID, *place_of(number)) for number in range(count)]


def of_catalog(file: Path) -> list[Place]:
    """The beacons of a document for `proximity catalog load`."""
    document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return [
        Place(str(beacon["uuid"]).lower(), int(beacon["major"]), int(beacon["minor"]))
        for company in document["companies"]
        for venue in company.get("venues", ())
        for beacon in venue.get("beacons", ())
    ]


def received(consumer: Consumer, *, most: int, seconds: float) -> list[Message]:
    """The next messages, as soon as there is one; empty after `seconds`.

    librdkafka's `consume` alone waits until there are as many messages, or for the whole time: half
    of that time would be measured as latency.
    """
    first = consumer.poll(seconds)
    return [] if first is None else [first, *consumer.consume(most, 0)]


if __name__ == "__main__":
    main()
