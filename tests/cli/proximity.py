"""Runs `proximity` as its users do, against the test's servers."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from confluent_kafka import Producer

from tests.servers.process import free_ports
from tests.servers.product_process import ROOT, run_product

_DEADLINE = 60.0


class Proximity:
    """The command with the settings of one test."""

    def __init__(self, directory: Path, bootstrap: str, topic_prefix: str, **more: str) -> None:
        self.bootstrap = bootstrap
        self.topic_prefix = topic_prefix
        self._directory = directory
        self._env = {
            "PATH": "/usr/bin:/bin",
            "PROXIMITY_KAFKA_BOOTSTRAP_SERVERS": bootstrap,
            "PROXIMITY_TOPIC_PREFIX": topic_prefix,
            "PROXIMITY_GROUP_PREFIX": topic_prefix,
            **more,
        }

    def set(self, name: str, value: str) -> None:
        """Change a setting for the next commands."""
        self._env[f"PROXIMITY_{name}"] = value

    def __call__(
        self, *arguments: str, given: bytes | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Run the command to its end."""
        return run_product(arguments, environment=self._env, given=given or b"", deadline=_DEADLINE)

    def start(self, *arguments: str, stdin: IO[bytes] | None = None) -> "subprocess.Popen[str]":
        """Start the command as a process of its own, to read it as it goes, or interrupt it."""
        return subprocess.Popen(
            [sys.executable, "-m", "engine.cli", *arguments],
            env=self._env | {"TZ": "UTC"},
            cwd=ROOT,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A shell that runs the tests in the background has them ignore it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def write(self, name: str, content: bytes) -> str:
        """Write a file for the command. Returns its path."""
        path = self._directory / name
        path.write_bytes(content)
        return str(path)

    def mention(self, *names: str) -> None:
        """The embedded broker makes a topic when it is mentioned."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for name in names:
            producer.list_topics(self.topic_prefix + name, timeout=60.0)

    async def put(
        self, name: str, *values: bytes | None, key: bytes | None = b"k", **headers: str
    ) -> None:
        """Publish records with these headers to a topic of the product."""
        self.mention(name)
        written = [(header, text.encode()) for header, text in headers.items()]
        async with AIOKafkaProducer(bootstrap_servers=self.bootstrap) as producer:
            for value in values:
                topic = self.topic_prefix + name
                await producer.send_and_wait(topic, value, key=key, headers=written)

    async def records(self, name: str) -> list[Any]:
        """All records of a topic, in order of partition and offset."""
        topic = self.topic_prefix + name
        async with AIOKafkaProducer(bootstrap_servers=self.bootstrap) as producer:
            numbers = await producer.partitions_for(topic)
        async with AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap, auto_offset_reset="earliest"
        ) as consumer:
            partitions = [TopicPartition(topic, number) for number in numbers]
            consumer.assign(partitions)
            ends = await consumer.end_offsets(partitions)
            found: list[Any] = []
            while len(found) < sum(ends.values()):
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    found += records
        return sorted(found, key=lambda record: (record.partition, record.offset))


def detection(udid: str, **more: Any) -> bytes:
    """A detection as a pipeline writes it."""
    fields = {
        "uuid": "b5c4a7e06f0d4c8e9d5a2c1f7a9e4b10",
        "major": 1,
        "minor": 2,
        "rssi": -60,
        "device": {"udid": udid},
    }
    return json.dumps(fields | more).encode()


def ports() -> dict[str, str]:
    """Free ones. The image gives `run` and `api`, which are two processes, one for metrics."""
    first = free_ports()
    metrics = dict.fromkeys(("METRICS_PORT", "API_METRICS_PORT"), str(first))
    given = metrics | {"API_PORT": str(first + 1), "METRICS_HOST": "127.0.0.1"}
    return {f"PROXIMITY_{name}": value for name, value in given.items()}


def findings_of(done: Any) -> dict[str, tuple[str, str]]:
    """The state and the result of each finding of `check --json`."""
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {f"{row['part']} {row['what']}": (row["state"], row["told"]) for row in rows}
