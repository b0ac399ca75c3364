"""Whole processes of the product, measured from outside: of any checkout, in any role."""

import asyncio
import contextlib
import os
import secrets
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from benchmarks.catalog import make_catalog
from benchmarks.lineup import ROOT, python_of
from benchmarks.machine import first_processor, peak_bytes, processor_seconds
from benchmarks.servers import servers
from benchmarks.topics import PARTITIONS, QUIET, BenchTopics, publish_all
from benchmarks.workloads import Record
from tests.servers.postgres import PostgresServer, create_database
from tests.servers.process import started
from tests.servers.waiting import wait_until

_START_SECONDS = 120.0
_STOP_SECONDS = 40.0
_DRAIN_SECONDS = 900.0
_POLL_SECONDS = 0.01  # each poll is a request to the broker, which shares its processor
_SESSION_SECONDS = 60  # a process stands still (SIGSTOP) while its records are published
_TIMEOUT = 60.0


class Stage(NamedTuple):
    """The servers, topics and catalog of one measurement."""

    kafka: str
    redis: str
    database: str
    topics: BenchTopics

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of a process of the product. `more` are settings."""
        own = {
            "KAFKA_BOOTSTRAP_SERVERS": self.kafka,
            "KAFKA_SESSION_TIMEOUT": str(_SESSION_SECONDS),
            "REDIS_URL": self.redis,
            "DATABASE_URL": self.database,
            "TOPIC_PREFIX": self.topics.prefix,
            "GROUP_PREFIX": self.topics.prefix,
            "REDIS_PREFIX": self.topics.prefix,
            "MAX_DETECTION_AGE": "86400",
            "METRICS_PORT": "0",
            "LOG_LEVEL": "error",
            **more,
        }
        return {**os.environ, **{f"PROXIMITY_{name}": value for name, value in own.items()}}

    @contextlib.contextmanager
    def running(
        self, role: str, *, checkout: Path = ROOT, pinned: bool = False, **settings: str
    ) -> Iterator[subprocess.Popen[bytes]]:
        """`proximity run --role` of a checkout, once it has its partitions; `pinned` to the first
        processor."""
        command = [python_of(checkout), "-m", "engine.cli", "run", "--role", role]
        pin = ["taskset", "-c", str(first_processor())] if pinned else []
        process = subprocess.Popen([*pin, *command], cwd=checkout, env=self.environment(**settings))
        watch = GroupWatch(self.kafka, f"{self.topics.prefix}{role}", self.topics.names.detections)
        try:
            wait_until(
                lambda: process.poll() is not None or watch.has_member(),
                deadline=_START_SECONDS,
                what=f"{role} has its partitions",
            )
            yield process
        finally:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def drained(
        self, process: subprocess.Popen[bytes], role: str, topic: str, records: list[Record]
    ) -> dict[str, float]:
        """Publish while the process is frozen, resume it, and wait until all is committed. The
        records, their seconds, and the processor time of the process."""
        watch = GroupWatch(self.kafka, f"{self.topics.prefix}{role}", topic)
        before = watch.committed()
        process.send_signal(signal.SIGSTOP)
        try:
            publish_all(self.kafka, topic, records)
        finally:
            process.send_signal(signal.SIGCONT)
        begin, cpu = time.perf_counter(), processor_seconds(process.pid)
        give_up = time.monotonic() + _DRAIN_SECONDS
        while (done := watch.committed() - before) < len(records):
            if time.monotonic() > give_up or process.poll() is not None:
                raise SystemExit(f"{role} did {done:,} of {len(records):,} records")
            time.sleep(_POLL_SECONDS)
        return {
            "records": done,
            "seconds": time.perf_counter() - begin,
            "seconds_processor": processor_seconds(process.pid) - cpu,
            "peak_bytes": peak_bytes(process.pid),
        }


@contextlib.asynccontextmanager
async def stage(
    broker: str,
    campaigns: int,
    *,
    partitions: int = PARTITIONS,
    apart: bool = False,
    checkout: Path = ROOT,
) -> AsyncIterator[Stage]:
    """Servers, among them a PostgreSQL with the tables of `checkout`, and a catalog of so many
    campaigns a beacon. `apart`: the servers stay off the first processor, which a pinned process
    has."""
    async with servers(broker, apart=apart) as running:
        with started(PostgresServer) as postgres:
            url = create_database(postgres.admin_url)
            await asyncio.to_thread(make_catalog, url, running.redis, campaigns, checkout=checkout)
            prefix = f"bench-{secrets.token_hex(4)}."
            topics = BenchTopics(running.kafka, prefix, partitions)
            yield Stage(running.kafka, running.redis, url, topics)


class GroupWatch:
    """A consumer group on one topic of PARTITIONS partitions."""

    def __init__(self, kafka: str, group: str, topic: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": kafka, "log_level": QUIET})
        self._group = group
        self._places = [TopicPartition(topic, number) for number in range(PARTITIONS)]

    def committed(self) -> int:
        """The committed records of the topic."""
        requested = [ConsumerGroupTopicPartitions(self._group, self._places)]
        (future,) = self._admin.list_consumer_group_offsets(
            requested, request_timeout=_TIMEOUT
        ).values()
        return sum(max(place.offset, 0) for place in future.result().topic_partitions)

    def has_member(self) -> bool:
        """Whether a member has partitions."""
        (future,) = self._admin.describe_consumer_groups(
            [self._group], request_timeout=_TIMEOUT
        ).values()
        # Brokers since 4.0 say so of a group that does not exist yet. (Raised, the error would keep
        # the client for longer than the broker, and the process would wait for its end.)
        members = () if future.exception() else future.result().members
        return any(each.assignment and each.assignment.topic_partitions for each in members)
