"""The load generator with a system that is frozen for a while."""

import threading
import time
from collections.abc import Iterator

import orjson
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from benchmarks.load.generator import OpenLoop
from benchmarks.load.traffic import Traffic, numbered

RATE, SECONDS, STALL = 100.0, 2.0, 1.5


class Echo(threading.Thread):
    """A system with one thread: one notification per detection, after a stall at the first."""

    def __init__(self, kafka: str, topics: tuple[str, str]) -> None:
        super().__init__(daemon=True)
        self.stop = threading.Event()
        self._notifications = topics[1]
        self._consumer = Consumer({"bootstrap.servers": kafka, "group.id": "echo"})
        admin = AdminClient({"bootstrap.servers": kafka})
        found = [admin.list_topics(topic, timeout=30).topics[topic] for topic in topics]
        self._consumer.assign([TopicPartition(topics[0], each, 0) for each in found[0].partitions])
        self._producer = Producer({"bootstrap.servers": kafka, "linger.ms": 0})

    def run(self) -> None:
        stalled = False
        while not self.stop.is_set():
            for message in self._consumer.consume(100, 0.05):
                if message.error() is not None:
                    continue
                if not stalled:
                    time.sleep(STALL)
                    stalled = True
                self._answer(message.value() or b"", f"{message.partition()}-{message.offset()}")
            self._producer.poll(0)
        self._producer.flush(10)
        self._consumer.close()

    def _answer(self, value: bytes, id_: str) -> None:
        try:
            seen = orjson.loads(value)
        except orjson.JSONDecodeError:
            return
        beacon = {name: seen[name] for name in ("uuid", "major", "minor")}
        notification = {"id": id_, "device": seen["device"], "beacon": beacon}
        self._producer.produce(self._notifications, orjson.dumps(notification))


@pytest.fixture
def echo(embedded_kafka: str) -> Iterator[Echo]:
    thread = Echo(embedded_kafka, ("t.detections", "t.notifications"))
    thread.start()
    yield thread
    thread.stop.set()
    thread.join(20)


def test_a_system_that_stalls_slows_its_answers_and_not_its_load(embedded_kafka: str, echo: Echo):
    loop = OpenLoop(
        kafka={"bootstrap.servers": embedded_kafka},
        detections="t.detections",
        notifications="t.notifications",
    )
    traffic = Traffic(
        rate=RATE, seconds=SECONDS, beacons=numbered(10), pattern="sweep", malformed=0.1
    )
    loop.run(traffic, settle=30.0)
    assert loop.sent == RATE * SECONDS
    assert (loop.refused, loop.failed, loop.unanswered, loop.foreign) == (0, 0, 0, 0)
    assert 0 < loop.latencies.count == loop.meetings < loop.sent
    # Those that were due while it stood still have waited, each for its share of the stall. A
    # closed loop would have sent one of them, and seen one slow answer.
    assert loop.latencies.milliseconds(100.0) >= 0.9 * STALL * 1000
    assert loop.latencies.milliseconds(50.0) >= 100.0
