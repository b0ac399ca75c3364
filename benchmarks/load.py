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
from dataclasses import dataclass, field
from itertools import accumulate
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
        took = loop.run(traffic, settle=arguments.settle)
    except KafkaException as error:
        sys.exit(f"{arguments.kafka}: {error}")
    if arguments.histogram is not None:
        loop.latencies.write(arguments.histogram)
    rounds = {"latency": loop.latencies.as_json(), "late": loop.late.as_json()}
    finish(
        console, arguments, watch, [latency_sheet(loop), _counts(loop, took)], rounds, _notes(loop)
    )


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
    parser.add_argument("--zipf", type=float, default=0.0, help="exponent; 0: uniform")
    parser.add_argument("--poisson", action="store_true", help="arrivals at random, not evenly")
    parser.add_argument("--unknown", type=float, default=0.0, help="share of unknown beacons")
    parser.add_argument("--malformed", type=float, default=0.0, help="share cut off in the middle")
    parser.add_argument(
        "--settle", type=float, default=10.0, help="seconds without a notification that end it"
    )
    parser.add_argument("--histogram", type=Path, help="write the percentile distribution")
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
        zipf=arguments.zipf,
        poisson=arguments.poisson,
        unknown=arguments.unknown,
        malformed=arguments.malformed,
    )


def latency_sheet(loop: OpenLoop) -> Sheet:
    """Percentiles, from the scheduled moment."""
    columns = [*(f"p{each:g}, ms" for each in PERCENTILES), "most, ms", "notifications"]
    row = [f"{loop.latencies.milliseconds(each):,.1f}" for each in (*PERCENTILES, 100.0)]
    title = "From the moment a detection was due until its notification was seen"
    return Sheet(title, columns, [[*row, f"{loop.latencies.count:,}"]])


def _counts(loop: OpenLoop, took: float) -> Sheet:
    counts = {
        "detections sent": loop.sent,
        "of them refused by the full queue": loop.refused,
        "not delivered": loop.failed,
        "devices that met a known beacon": loop.meetings,
        "meetings without a notification": loop.unanswered,
        "notifications again, same id": loop.repeats,
        "notifications of others": loop.foreign,
    }
    rows = [[name, f"{count:,}"] for name, count in counts.items()]
    rows.append(["detections a second, reached", f"{loop.sent / max(took, 0.001):,.0f}"])
    late = f"{loop.late.milliseconds(99.0):,.1f} ms (most {loop.late.milliseconds(100.0):,.1f})"
    return Sheet("What was sent", ["", ""], [*rows, ["the generator late, p99", late]])


def _notes(loop: OpenLoop) -> list[str]:
    if loop.late.milliseconds(99.0) <= _LATE_MS:
        return []
    return [
        "The generator itself was late: the latencies are those of users of a system whose load "
        "comes from one processor. Run it on a machine of its own, or several of them."
    ]


_SECONDS = 30.0
_POLL_SECONDS = 0.05
_POLL_EVERY = 64
_SHORTEST_SLEEP = 0.0002
_BEGIN_SECONDS = 0.2
_AT_ONCE = 500

Key = tuple[str, "Place"]


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

    def as_json(self) -> dict[str, float | str]:
        """Percentiles in milliseconds, and the histogram itself (HdrHistogram's own encoding), so
        that those of several runs can be added."""
        of = {f"p{each:g}": self.milliseconds(each) for each in PERCENTILES}
        encoded = self._histogram.encode()
        return {
            **of,
            "max": self.milliseconds(100.0),
            "count": self.count,
            "histogram": encoded.decode() if isinstance(encoded, bytes) else str(encoded),
        }

    def write(self, file: Path) -> None:
        """The percentile distribution in milliseconds, as HdrHistogram's plotters read it."""
        with file.open("wb") as out:
            self._histogram.output_percentile_distribution(out, 1000.0)


Pattern = Literal["dwell", "sweep", "roam", "herd"]
_SEED = 20261122
_MANY = 1_000_000_007  # more than there are devices
_UNKNOWN = "00000000-0000-4000-8000-0000000000ff"


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
    malformed: bool
    known: bool


@dataclass(frozen=True)
class Traffic:
    """`rate` detections a second for `seconds`.

    dwell: `devices` stay at a beacon each. sweep: a new device each time. roam: `devices` are at
    any beacon each time. herd: all `devices` enter within the first second, and then dwell.
    Beacons are drawn uniformly, or by Zipf's law with exponent `zipf`. `unknown` and `malformed`
    are shares of the detections.
    """

    rate: float
    seconds: float
    beacons: list[Place]
    pattern: Pattern = "dwell"
    devices: int = 10_000
    zipf: float = 0.0
    poisson: bool = False
    unknown: float = 0.0
    malformed: float = 0.0
    seed: int = _SEED
    _weights: list[float] = field(init=False, repr=False, compare=False)
    _homes: dict[int, Place] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        shares = [1 / rank**self.zipf for rank in range(1, len(self.beacons) + 1)]
        object.__setattr__(self, "_weights", list(accumulate(shares)))

    def meetings(self) -> Iterator[Meeting]:
        """All detections in order of time; the same parameters give the same detections."""
        draw = random.Random(self.seed)
        for number, at in enumerate(self._times(draw)):
            device, place = self._device_and_place(number, draw)
            known = not self.unknown or draw.random() >= self.unknown
            malformed = bool(self.malformed) and draw.random() < self.malformed
            yield Meeting(at, device, place if known else _other_place(place), malformed, known)

    def _times(self, draw: random.Random) -> Iterator[float]:
        if self.pattern == "herd":
            yield from (number / self.devices for number in range(self.devices))
        at = 1.0 if self.pattern == "herd" else 0.0
        even = 1 / self.rate
        while at < self.seconds:
            yield at
            at += draw.expovariate(self.rate) if self.poisson else even

    def _device_and_place(self, number: int, draw: random.Random) -> tuple[int, Place]:
        if self.pattern == "sweep":
            return number, self._drawn(draw)
        if self.pattern == "herd" and number < self.devices:
            return number, self._home(number)
        device = draw.randrange(self.devices)
        return device, self._drawn(draw) if self.pattern == "roam" else self._home(device)

    def _home(self, device: int) -> Place:
        """The place of a device that dwells, drawn by its own random number."""
        home = self._homes.get(device)
        if home is None:
            home = self._homes[device] = self._drawn(random.Random(self.seed * _MANY + device))
        return home

    def _drawn(self, draw: random.Random) -> Place:
        if not self.zipf:
            return self.beacons[draw.randrange(len(self.beacons))]
        return draw.choices(self.beacons, cum_weights=self._weights)[0]


def _other_place(place: Place) -> Place:
    return place._replace(uuid=_UNKNOWN)


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
