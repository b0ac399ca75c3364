"""Servers, topics and a catalog for whole processes of the product, measured from outside."""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.catalog import CatalogShape, make_catalog
from benchmarks.outside import GroupWatch, send_signal, wait
from benchmarks.servers import servers
from benchmarks.topics import BenchTopics
from benchmarks.workloads import Record
from catalog.redis_connection import connect_redis

_START_SECONDS = 120.0
_STOP_SECONDS = 40.0
_POLL_SECONDS = 0.01  # each poll is a request to the broker, which shares its processor
_SESSION_SECONDS = 60  # they stand still (SIGSTOP) while detections are published
DRAIN_SECONDS = 900.0


class Stage(NamedTuple):
    """The servers, topics and catalog of a scenario."""

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
            "LOG_LEVEL": "error",  # detections of the last minute are slow notifications
            **more,
        }
        return {**os.environ, **{f"PROXIMITY_{name}": value for name, value in own.items()}}

    def group(self, role: str) -> GroupWatch:
        """The consumer group of a role on the detections."""
        return GroupWatch(self.kafka, f"{self.topics.prefix}{role}", self.topics.names.detections)

    @contextlib.contextmanager
    def running(
        self, role: str, *, workers: int = 1, **settings: str
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Start `proximity run --role`, and wait until all partitions are assigned."""
        command = [sys.executable, "-m", "engine.cli", "run", "--role", role]
        process = subprocess.Popen(
            [*command, "--workers", str(workers)],
            env=self.environment(**settings),
        )
        try:
            watch = self.group(role)
            wait(
                lambda: process.poll() is not None or watch.has_members(workers),
                seconds=_START_SECONDS,
                what=f"{role} has its partitions",
            )
            yield process
        finally:
            _stop(process)

    def drained(
        self, process: subprocess.Popen[bytes], role: str, records: list[Record]
    ) -> tuple[float, float]:
        """Publish while the process is frozen, resume it, and wait until all is committed:
        detections behind the first tenth, and the seconds that they took."""
        watch = self.group(role)
        before = watch.committed()
        send_signal(process.pid, signal.SIGSTOP)
        try:
            self.topics.publish(records)
        finally:
            send_signal(process.pid, signal.SIGCONT)
        first, begin = 0, 0.0
        give_up = time.monotonic() + DRAIN_SECONDS
        while (done := watch.committed() - before) < len(records):
            if done >= len(records) // 10 and not first:
                first, begin = done, time.perf_counter()
            if time.monotonic() > give_up or process.poll() is not None:
                raise SystemExit(f"{role} did {done:,} of {len(records):,} detections")
            time.sleep(_POLL_SECONDS)
        return done - first, time.perf_counter() - begin

    async def forget(self) -> None:
        """Empty Redis."""
        client = connect_redis(self.redis)
        await client.flushall()
        await client.aclose()


@contextlib.asynccontextmanager
async def stage(
    broker: str, shape: CatalogShape, *, database: str | None = None
) -> AsyncIterator[Stage]:
    """Nothing is pinned to a processor: workers and servers share all of them."""
    async with servers(broker, apart=False) as running:
        with tempfile.TemporaryDirectory() as directory:
            url = database or f"sqlite:///{Path(directory) / 'catalog.sqlite3'}"
            await make_catalog(url, shape)
            prefix = f"bench-{secrets.token_hex(4)}."
            topics = BenchTopics(running.kafka, prefix, by_mention=not running.keeps_all)
            yield Stage(running.kafka, running.redis, url, topics)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        send_signal(process.pid, signal.SIGKILL)
        process.wait()
