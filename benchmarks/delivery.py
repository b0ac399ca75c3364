"""`python -m benchmarks.delivery`: the cost of DELIVERY=exactly_once compared with at_least_once.

Each mode in a process of its own, seen from outside: detections are published, and a consumer that
reads committed waits for their notifications. Every detection grants. First a steady stream, for
the latency from publishing to being seen; then a burst, for the throughput.
"""

import argparse
import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from rich.table import Table

from benchmarks.catalog import CatalogShape, make_catalog
from benchmarks.receiving import received
from benchmarks.workloads import workloads
from engine.cli.embedded.redis_server import EmbeddedRedis
from engine.kafka.topics import Topics
from tests.servers.kafka.server import KafkaServer
from tests.servers.process import started

MODES = ("at_least_once", "exactly_once")
_PARTITIONS = 6
_WARMING = 100
_DEADLINE = 240.0


class Figures(NamedTuple):
    """The result of a mode: latencies of the stream (s), detections a second of the burst."""

    latencies: list[float]
    rate: float


def main() -> None:
    """Parse the arguments, run both modes, print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.delivery", description=__doc__)
    parser.add_argument("--records", type=int, default=60_000, help="detections of the burst")
    parser.add_argument("--rate", type=int, default=200, help="detections a second of the stream")
    parser.add_argument("--seconds", type=int, default=15, help="length of the stream")
    parser.add_argument("--kafka", help="host:port of a broker; default: one is started")
    arguments = parser.parse_args()
    table = Table("delivery", "burst, detections/s", "stream, p50 ms", "p99 ms", "max ms")
    with _kafka(arguments.kafka) as kafka:
        for mode in MODES:
            found = asyncio.run(_measure(kafka, mode, arguments))
            cuts = statistics.quantiles(found.latencies, n=100)
            milliseconds = (cuts[49], cuts[98], max(found.latencies))
            table.add_row(
                mode, f"{found.rate:,.0f}", *(f"{1000 * each:,.0f}" for each in milliseconds)
            )
    Console().print(table)


@contextlib.contextmanager
def _kafka(named: str | None) -> Iterator[str]:
    if named is not None:
        yield named
        return
    with started(KafkaServer) as server:
        yield server.bootstrap_servers


async def _measure(kafka: str, mode: str, arguments: argparse.Namespace) -> Figures:
    prefix = f"bench-{os.getpid()}-{mode}."
    redis = EmbeddedRedis()
    await redis.start()
    try:
        with tempfile.TemporaryDirectory() as directory:
            database = f"sqlite:///{Path(directory) / 'catalog.sqlite3'}"
            await make_catalog(database, CatalogShape(campaigns=1))
            environment = os.environ | {
                "PROXIMITY_KAFKA_BOOTSTRAP_SERVERS": kafka,
                "PROXIMITY_REDIS_URL": redis.url,
                "PROXIMITY_DATABASE_URL": database,
                "PROXIMITY_TOPIC_PREFIX": prefix,
                "PROXIMITY_GROUP_PREFIX": prefix,
                "PROXIMITY_METRICS_PORT": "0",
                "PROXIMITY_DELIVERY": mode,
                "PROXIMITY_LOG_LEVEL": "error",
            }
            topics = [NewTopic(each, _PARTITIONS, 1) for each in Topics.named(prefix).all()]
            admin = AdminClient({"bootstrap.servers": kafka})
            for made in admin.create_topics(topics).values():
                made.result(30)
            return await asyncio.to_thread(_run, kafka, prefix, environment, arguments)
    finally:
        await redis.stop()


def _run(
    kafka: str, prefix: str, environment: dict[str, str], arguments: argparse.Namespace
) -> Figures:
    command = [sys.executable, "-m", "engine.cli", "run", "--role", "trigger"]
    trigger = subprocess.Popen(command, env=environment)
    outside = _Outside(kafka, Topics.named(prefix))
    try:
        stream = arguments.rate * arguments.seconds
        messages = list(
            workloads(count := stream + arguments.records + _WARMING)["sweep"].records(count)
        )
        outside.send(messages[:100])
        outside.see(100)  # it is up, and its producers are warm
        outside.latencies.clear()
        outside.send_steadily(messages[100 : stream + 100], arguments.rate)
        outside.see(stream)
        latencies = list(outside.latencies)
        begin = time.perf_counter()
        outside.send(messages[stream + 100 :])
        outside.see(arguments.records)
        return Figures(latencies, arguments.records / (time.perf_counter() - begin))
    finally:
        outside.close()
        trigger.terminate()
        trigger.wait(60)


class _Outside:
    """Publishes detections, and reads their notifications as a push sender would."""

    def __init__(self, kafka: str, topics: Topics) -> None:
        self.latencies: list[float] = []
        self._topics = topics
        self._sent: dict[bytes, float] = {}
        self._producer = Producer(
            {
                "bootstrap.servers": kafka,
                "partitioner": "murmur2_random",
                "linger.ms": 1,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        self._consumer = Consumer(
            {
                "bootstrap.servers": kafka,
                "group.id": "outside",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 10,
            }
        )
        self._consumer.subscribe([topics.notifications])

    def send(self, messages: list[tuple[bytes, bytes]]) -> None:
        """Publish a burst."""
        for key, value in messages:
            self._sent[key] = time.perf_counter()
            self._producer.produce(self._topics.detections, value=value, key=key)
        self._producer.poll(0)

    def send_steadily(self, messages: list[tuple[bytes, bytes]], rate: int) -> None:
        """Publish `rate` a second, and read notifications meanwhile."""
        begin = time.perf_counter()
        for number, message in enumerate(messages):
            while time.perf_counter() < begin + number / rate:
                self._producer.poll(0)
                self._look(0.001)
            self.send([message])

    def see(self, count: int) -> None:
        """Wait for the notifications of all that was sent, `count` of them."""
        give_up = time.perf_counter() + _DEADLINE
        while self._unseen():
            if time.perf_counter() > give_up:
                raise SystemExit(f"{self._unseen()} of {count} notifications did not come")
            self._producer.poll(0)
            self._look(0.1)

    def close(self) -> None:
        """Leave the group."""
        self._producer.flush(10)
        self._consumer.close()

    def _unseen(self) -> int:
        return len(self._sent)

    def _look(self, seconds: float) -> None:
        for message in received(self._consumer, most=500, seconds=seconds):
            if message.error() is None:
                sent = self._sent.pop(message.key() or b"", None)
                if sent is not None:  # else a repeat
                    self.latencies.append(time.perf_counter() - sent)


if __name__ == "__main__":
    main()
