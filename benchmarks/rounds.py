"""One workload: its detections are published once, and each subject reads them from the beginning,
in a process of its own, in turn with the others."""

import asyncio
import itertools
import json
import os
import subprocess
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from benchmarks.catalog import exported, make_catalog
from benchmarks.child import ChildFailedError, figures_of
from benchmarks.lineup import FLOOR, Subject
from benchmarks.machine import first_processor
from benchmarks.report import Result
from benchmarks.servers import Servers
from benchmarks.topics import BenchTopics
from benchmarks.workloads import Workload
from catalog.redis_connection import connect_redis

SUBJECT_SECONDS = 480.0
_MAX_AGE = 86_400  # seconds: a long run must not make its own detections stale


class SubjectError(Exception):
    """A subject failed, or its outcome is not the expected one; the message says which."""


class Rounds:
    """Runs subjects over one workload. `directory` holds its catalog.

    With `keep_index` Redis loses the claims before each run, and nothing else. The notifications
    are read back and compared if the broker keeps them all; without `reads_back` they are counted.
    """

    def __init__(
        self,
        servers: Servers,
        workload: Workload,
        records: int,
        directory: Path,
        *,
        keep_index: bool = False,
        reads_back: bool = True,
        patience: float = SUBJECT_SECONDS,
    ) -> None:
        self._servers = servers
        self._workload = workload
        self._records = records
        self._keep_index = keep_index
        self._reads_back = reads_back and servers.keeps_all
        self._patience = patience
        self._redis_prefix = f"{workload.name}:"
        self._warm_records = 0
        self._database = f"sqlite:///{directory / 'catalog.sqlite3'}"
        self._catalog = directory / "catalog.json"
        self._numbers = itertools.count()
        self.measured = self._topics("bench")
        self._earlier = self._topics("earlier")
        self._warm = self._topics("warm")

    def _topics(self, word: str) -> BenchTopics:
        prefix = f"{word}-{os.getpid()}-{self._workload.name}."
        return BenchTopics(self._servers.kafka, prefix, by_mention=not self._servers.keeps_all)

    async def prepare(self, *, warm_records: int = 0, alternatives: bool = True) -> None:
        """Publish the detections and make the catalog, for `alternatives` as a file, too; and the
        records of warming."""
        await make_catalog(self._database, self._workload.catalog)
        if alternatives:
            plain = await exported(self._database)
            self._catalog.write_text(json.dumps(plain), encoding="utf-8")
        await asyncio.to_thread(self.measured.publish, self._workload.records(self._records))
        self._before = self._workload.earlier_records(self._records)
        await asyncio.to_thread(self._earlier.publish, self._before)
        self._warm_records = warm_records
        warming = self._workload.records(warm_records, "warming")
        await asyncio.to_thread(self._warm.publish, warming)

    async def run(self, subject: Subject) -> Result:
        """One run of one subject from an empty Redis on; its outcome is checked. Raises
        SubjectError."""
        group = await self.begin(subject)
        begins = await asyncio.to_thread(self.measured.ends)
        result = await self._run(subject, self.measured, self._records, group)
        if subject.name != FLOOR:
            await asyncio.to_thread(self._check, subject, begins, result)
        return result

    async def begin(self, subject: Subject) -> str:
        """Empty Redis and take the claims that the workload needs. Returns the group of the run."""
        await self._empty_redis()
        group = f"{self.measured.prefix}{next(self._numbers)}."
        self._state(group).mkdir(parents=True)
        if self._before and subject.name != FLOOR:
            cold = subject._replace(warm=False)
            await self._run(cold, self._earlier, len(self._before), group)
        return group

    async def _empty_redis(self) -> None:
        redis = connect_redis(self._servers.redis)
        if not self._keep_index:
            await redis.flushall()
        else:
            claims = f"{self._redis_prefix}claims:*"
            async for key in redis.scan_iter(claims, count=5000):
                await redis.unlink(key)
        await redis.aclose()

    def started(self, subject: Subject, records: int, group: str) -> subprocess.Popen[bytes]:
        """A process that ends after `records` records."""
        return subprocess.Popen(
            self._command(subject, records),
            cwd=subject.directory,
            env=self._environment(subject, self.measured, group),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    async def _run(self, subject: Subject, topics: BenchTopics, records: int, group: str) -> Result:
        try:
            result = await figures_of(
                self._command(subject, records),
                environment=self._environment(subject, topics, group),
                seconds=self._patience,
                directory=subject.directory,
            )
        except ChildFailedError as error:
            raise SubjectError(f"{subject.name}, {self._workload.name}: {error}") from error
        if not result.get("records"):
            raise SubjectError(f"{subject.name}, {self._workload.name}: it measured nothing")
        return result

    def _command(self, subject: Subject, records: int) -> list[str]:
        own = str(first_processor())
        return ["taskset", "-c", own, *subject.command, str(records), "-1"]

    def _environment(self, subject: Subject, topics: BenchTopics, group: str) -> dict[str, str]:
        warming = {"BENCH_WARM_RECORDS": str(self._warm_records)} if subject.warm else {}
        return {
            **os.environ,
            "PROXIMITY_KAFKA_BOOTSTRAP_SERVERS": self._servers.kafka,
            "PROXIMITY_REDIS_URL": self._servers.redis,
            "PROXIMITY_DATABASE_URL": self._database,
            "PROXIMITY_TOPIC_PREFIX": topics.prefix,
            "PROXIMITY_REDIS_PREFIX": self._redis_prefix,
            "PROXIMITY_GROUP_PREFIX": group,
            "PROXIMITY_MAX_DETECTION_AGE": str(_MAX_AGE),
            "BENCH_KAFKA": self._servers.kafka,
            "BENCH_REDIS": self._servers.redis,
            "BENCH_CATALOG": str(self._catalog),
            "BENCH_DETECTIONS": topics.names.detections,
            "BENCH_NOTIFICATIONS": topics.names.notifications,
            "BENCH_WARM_DETECTIONS": self._warm.names.detections,
            "BENCH_WARM_NOTIFICATIONS": self._warm.names.notifications,
            "BENCH_GROUP": group,
            "BENCH_STATE": str(self._state(group)),
            "BENCH_MAX_AGE": str(_MAX_AGE),
            **warming,
            **subject.environment,
        }

    def _state(self, group: str) -> Path:
        """The directory for the state of frameworks."""
        return self._catalog.parent / "state" / group

    def _check(self, subject: Subject, begins: dict[int, int], result: Result) -> None:
        """Each device was sent each campaign of its beacon once, and nothing else."""
        expected = self._workload.notifications(self._records)
        wanted = len(expected) * self._workload.campaigns
        found = self.measured.notified(begins) if self._reads_back else []
        sent = {(each.udid, each.beacon, each.campaign) for each in found}
        met = {(each.udid, each.beacon) for each in found}
        wrong = self._reads_back and (
            len(found) != wanted or len(sent) != wanted or met != expected
        )
        if wrong or result["notifications"] != wanted:
            raise SubjectError(
                f"{subject.name}, {self._workload.name}: {result['notifications']:,.0f} "
                f"notifications counted, {len(found):,} read, {wanted:,} expected"
            )


async def rounds_of(
    servers: Servers,
    workload: Workload,
    records: int,
    subjects: Sequence[Subject],
    *,
    rounds: int,
    warm_records: int,
) -> AsyncIterator[tuple[int, str, Result | SubjectError]]:
    """Round, subject and result; in each round another subject is the first. A subject that failed,
    or is slow, does not run again."""
    warming = warm_records if any(subject.warm for subject in subjects) else 0
    done_with: set[str] = set()
    with tempfile.TemporaryDirectory() as directory:
        runs = Rounds(servers, workload, records, Path(directory))
        await runs.prepare(warm_records=warming)
        for number in range(rounds):
            first = number % len(subjects)
            for subject in (*subjects[first:], *subjects[:first]):
                if subject.name in done_with:
                    continue
                if subject.slow:
                    done_with.add(subject.name)
                try:
                    yield number, subject.name, await runs.run(subject)
                except SubjectError as error:
                    done_with.add(subject.name)
                    yield number, subject.name, error
