"""One workload: its detections are published once, and each subject reads them from the beginning,
in a process of its own, in turn with the others."""

import asyncio
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple

import orjson

from benchmarks.catalog import exported, make_catalog
from benchmarks.servers import Servers
from benchmarks.topics import BenchTopics
from benchmarks.workloads import Workload
from catalog.redis_connection import connect_redis

_SUBJECT_SECONDS = 360.0
_MAX_AGE = 86_400  # seconds: a long run must not make its own detections stale
_ROOT = Path(__file__).parents[1]

Result = dict[str, float]


class Subject(NamedTuple):
    """What is measured: the command behind `python -m`, and the checkout that it runs in."""

    name: str
    command: Sequence[str]
    directory: Path = _ROOT


PRODUCT = {
    "floor": Subject("floor", ["benchmarks.subjects", "floor"]),
    "trigger": Subject("trigger", ["benchmarks.subjects", "trigger"]),
}
ALTERNATIVES = {
    name: Subject(name, [f"benchmarks.alternatives.{name}_loop"])
    for name in ("aiokafka", "confluent")
}


class Rounds:
    """Runs subjects over one workload. `directory` holds its catalog."""

    def __init__(self, servers: Servers, workload: Workload, records: int, directory: Path) -> None:
        self._servers = servers
        self._workload = workload
        self._records = records
        self._database = f"sqlite:///{directory / 'catalog.sqlite3'}"
        self._catalog = directory / "catalog.json"
        self._numbers = itertools.count()
        prefix = f"bench-{os.getpid()}-{workload.name}."
        self._measured = BenchTopics(servers.kafka, prefix, by_mention=not servers.keeps_all)
        self._earlier = BenchTopics(
            servers.kafka, f"earlier-{prefix}", by_mention=not servers.keeps_all
        )
        self._prefixes = {self._measured: prefix, self._earlier: f"earlier-{prefix}"}

    async def prepare(self) -> None:
        """Publish the detections and make the catalog."""
        await make_catalog(self._database, self._workload.campaigns)
        self._catalog.write_text(json.dumps(await exported(self._database)), encoding="utf-8")
        await asyncio.to_thread(self._measured.publish, self._workload.records(self._records))
        self._before = self._workload.earlier_records(self._records)
        await asyncio.to_thread(self._earlier.publish, self._before)

    async def run(self, subject: Subject) -> Result:
        """One run of one subject from an empty Redis on; its outcome is checked."""
        redis = connect_redis(self._servers.redis)
        await redis.flushall()
        await redis.aclose()
        if self._before and subject.name != "floor":
            await self._start(subject, self._earlier, len(self._before))
        begins = await asyncio.to_thread(self._measured.ends)
        result = await self._start(subject, self._measured, self._records)
        if subject.name != "floor":
            await asyncio.to_thread(self._check, subject, begins, result)
        return result

    async def _start(self, subject: Subject, topics: BenchTopics, records: int) -> Result:
        return await asyncio.to_thread(self._run, subject, topics, records)

    def _run(self, subject: Subject, topics: BenchTopics, records: int) -> Result:
        own = min(os.sched_getaffinity(1))
        command = [sys.executable, "-m", *subject.command, str(records), str(own)]
        done = subprocess.run(
            command,
            cwd=subject.directory,
            env=self._environment(topics),
            stdout=subprocess.PIPE,
            timeout=_SUBJECT_SECONDS,
            check=True,
        )
        result: Result = orjson.loads(done.stdout.splitlines()[-1])
        return result

    def _environment(self, topics: BenchTopics) -> dict[str, str]:
        group = f"{next(self._numbers)}."
        return os.environ | {
            "PROXIMITY_KAFKA_BOOTSTRAP_SERVERS": self._servers.kafka,
            "PROXIMITY_REDIS_URL": self._servers.redis,
            "PROXIMITY_DATABASE_URL": self._database,
            "PROXIMITY_TOPIC_PREFIX": self._prefixes[topics],
            "PROXIMITY_REDIS_PREFIX": "bench:",
            "PROXIMITY_GROUP_PREFIX": f"{self._prefixes[topics]}{group}",
            "PROXIMITY_MAX_DETECTION_AGE": str(_MAX_AGE),
            "BENCH_KAFKA": self._servers.kafka,
            "BENCH_REDIS": self._servers.redis,
            "BENCH_CATALOG": str(self._catalog),
            "BENCH_DETECTIONS": topics.names.detections,
            "BENCH_NOTIFICATIONS": topics.names.notifications,
            "BENCH_GROUP": f"{self._prefixes[topics]}{group}",
            "BENCH_MAX_AGE": str(_MAX_AGE),
        }

    def _check(self, subject: Subject, begins: dict[int, int], result: Result) -> None:
        """Each device was sent each campaign of its beacon once, and nothing else."""
        expected = self._workload.notifications(self._records)
        wanted = len(expected) * self._workload.campaigns
        found = self._measured.notified(begins) if self._servers.keeps_all else []
        met = {(udid, minor) for udid, minor, _ in found}
        wrong = self._servers.keeps_all and (
            len(found) != wanted or len(set(found)) != wanted or met != expected
        )
        if wrong or result["notifications"] != wanted:
            raise SystemExit(
                f"{subject.name}, {self._workload.name}: {result['notifications']:,.0f} "
                f"notifications counted, {len(found):,} read, {wanted:,} expected"
            )


async def rounds_of(
    servers: Servers, workload: Workload, records: int, subjects: Sequence[Subject], rounds: int
) -> AsyncIterator[tuple[int, str, Result]]:
    """Round, subject and result; in each round another subject is the first."""
    with tempfile.TemporaryDirectory() as directory:
        runs = Rounds(servers, workload, records, Path(directory))
        await runs.prepare()
        for number in range(rounds):
            turn = number % len(subjects)
            for subject in (*subjects[turn:], *subjects[:turn]):
                yield number, subject.name, await runs.run(subject)
