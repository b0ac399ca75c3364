"""One workload: its detections are published once, and each subject reads them from the beginning,
in a process of its own, in turn with the others."""

import asyncio
import itertools
import json
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path

import orjson

from benchmarks.catalog import exported, make_catalog
from benchmarks.lineup import Subject
from benchmarks.machine import first_processor, peak_bytes
from benchmarks.report import Result
from benchmarks.servers import Servers
from benchmarks.topics import BenchTopics
from benchmarks.workloads import Record, Workload
from catalog.redis_connection import connect_redis

_SUBJECT_SECONDS = 480.0
_LOOK_SECONDS = 0.25
_MAX_AGE = 86_400  # seconds: a long run must not make its own detections stale


class SubjectError(Exception):
    """A subject failed, or its outcome is not the expected one; the message says which."""


class Rounds:
    """Runs subjects over one workload. `directory` holds its catalog."""

    def __init__(self, servers: Servers, workload: Workload, records: int, directory: Path) -> None:
        self._servers = servers
        self._workload = workload
        self._records = records
        self._directory = directory
        self._catalog = directory / "catalog.json"
        self._databases: dict[Path, str] = {}  # by checkout
        self._numbers = itertools.count()
        self._before: list[Record] = []
        self._measured, self._earlier = map(self._topics, ("bench", "earlier"))

    def _topics(self, word: str) -> BenchTopics:
        prefix = f"{word}-{os.getpid()}-{self._workload.name}."
        return BenchTopics(self._servers.kafka, prefix)

    async def prepare(self) -> None:
        """Publish the detections, and write the catalog to a file."""
        self._catalog.write_text(json.dumps(list(exported(self._workload.campaigns))))
        self._before = self._workload.earlier_records(self._records)
        await asyncio.to_thread(self._earlier.publish, self._before)
        records = self._workload.records(self._records)
        await asyncio.to_thread(self._measured.publish, records)

    async def run(self, subject: Subject) -> Result:
        """One run of one subject from an empty Redis on; its outcome is checked. Raises
        SubjectError."""
        if subject.directory not in self._databases:
            await asyncio.to_thread(self._make_database, subject.directory)
        redis = connect_redis(self._servers.redis)
        await redis.flushall()
        await redis.aclose()
        group = f"{self._measured.prefix}{next(self._numbers)}."
        if self._before:  # takes the claims that the workload needs
            await self._run(subject, self._earlier, len(self._before), group)
        begins = await asyncio.to_thread(self._measured.ends)
        result = await self._run(subject, self._measured, self._records, group)
        await asyncio.to_thread(self._check, subject, begins, result)
        return result

    def _make_database(self, checkout: Path) -> None:
        file = self._directory / f"{len(self._databases)}.sqlite3"
        database, workload = f"sqlite:///{file}", self._workload
        make_catalog(
            database,
            self._servers.redis,
            workload.campaigns,
            workload.kind,
            company=workload.company,
            checkout=checkout,
        )
        self._databases[checkout] = database

    async def _run(self, subject: Subject, topics: BenchTopics, records: int, group: str) -> Result:
        own = str(first_processor())
        # (Older checkouts want the -1.)
        process = await asyncio.create_subprocess_exec(
            *("taskset", "-c", own, *subject.command, str(records), "-1"),
            cwd=subject.directory,
            env=self._environment(subject, topics, group),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        name = f"{subject.name}, {self._workload.name}"
        try:
            async with asyncio.timeout(_SUBJECT_SECONDS):
                ending, peak = asyncio.create_task(process.communicate()), 0
                while not ending.done():
                    with suppress(OSError, StopIteration):  # it has just ended
                        peak = peak_bytes(process.pid)
                    await asyncio.wait([ending], timeout=_LOOK_SECONDS)
                written, errors = ending.result()
        except TimeoutError:
            raise SubjectError(f"{name}: not done after {_SUBJECT_SECONDS:,.0f} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            last = errors.decode(errors="replace").strip().splitlines()[-1:]
            raise SubjectError(f"{name}: it ended with status {process.returncode}: {last}")
        lines = [line for line in written.splitlines() if line.startswith(b"{")]
        result: Result = orjson.loads(lines[-1]) if lines else {}
        if not result.get("records"):
            raise SubjectError(f"{name}: it measured nothing")
        return {"peak_bytes": peak} | result

    def _environment(self, subject: Subject, topics: BenchTopics, group: str) -> dict[str, str]:
        return {
            **os.environ,
            "PROXIMITY_KAFKA_BOOTSTRAP_SERVERS": self._servers.kafka,
            "PROXIMITY_REDIS_URL": self._servers.redis,
            "PROXIMITY_DATABASE_URL": self._databases[subject.directory],
            "PROXIMITY_TOPIC_PREFIX": topics.prefix,
            "PROXIMITY_REDIS_PREFIX": f"{self._workload.name}:",
            "PROXIMITY_GROUP_PREFIX": group,
            "PROXIMITY_MAX_DETECTION_AGE": str(_MAX_AGE),
            "BENCH_KAFKA": self._servers.kafka,
            "BENCH_REDIS": self._servers.redis,
            "BENCH_CATALOG": str(self._catalog),
            "BENCH_DETECTIONS": topics.names.detections,
            "BENCH_NOTIFICATIONS": topics.names.notifications,
            "BENCH_GROUP": group,
            "BENCH_MAX_AGE": str(_MAX_AGE),
            **subject.environment,
        }

    def _check(self, subject: Subject, begins: dict[int, int], result: Result) -> None:
        """Each device was sent each campaign of its beacon once, and nothing else."""
        expected = self._workload.notifications(self._records)
        wanted = len(expected) * self._workload.campaigns
        found = self._measured.notified(begins)
        met = {(udid, beacon) for udid, beacon, _ in found}
        counts = {len(found), len(set(found)), round(result["notifications"])}
        if counts != {wanted} or met != expected:
            raise SubjectError(
                f"{subject.name}, {self._workload.name}: {result['notifications']:,.0f} "
                f"notifications counted, {len(found):,} read, {wanted:,} expected"
            )


async def rounds_of(
    servers: Servers, workload: Workload, records: int, subjects: Sequence[Subject], *, rounds: int
) -> AsyncIterator[tuple[int, str, Result | SubjectError]]:
    """Round, subject and result; in each round another subject is the first. A subject that failed
    does not run again."""
    failed: set[str] = set()
    with tempfile.TemporaryDirectory() as directory:
        runs = Rounds(servers, workload, records, Path(directory))
        await runs.prepare()
        for number in range(rounds):
            first = number % len(subjects)
            for subject in (*subjects[first:], *subjects[:first]):
                if subject.name in failed:
                    continue
                try:
                    yield number, subject.name, await runs.run(subject)
                except SubjectError as error:
                    failed.add(subject.name)
                    yield number, subject.name, error
