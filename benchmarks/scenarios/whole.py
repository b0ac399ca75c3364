"""`python -m benchmarks.scenarios.whole`: compares the product's trigger and recorder with a pair
of loops that do the same job. One loop uses confluent-kafka and Redis pipelines, the other
confluent-kafka and asyncpg.

5% of the detections grant two campaigns each. For the others, the pair reads claims from Redis that
an earlier pair has taken. The first tenth of the detections warms the pair up and is not measured.
The result is the processor time of both processes from the publishing of the other detections until
SQL has all their rows.
"""

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
from rich.console import Console
from sqlalchemy import make_url

from benchmarks.catalog import exported
from benchmarks.figures import Chart, Findings, Sheet, Spread, add_json, as_options, finish
from benchmarks.machine import MachineWatch
from benchmarks.outside import GroupWatch, processor_seconds, wait
from benchmarks.recorder.postgres import database, postgres
from benchmarks.scenarios.stage import DRAIN_SECONDS, Stage, stage
from benchmarks.workloads import Record, Workload, workloads

_POLL_SECONDS = 0.2
_END_SECONDS = 20.0
_NEVER = "1000000000"
_LAP = 100  # each 100 detections in a row include the same number of throttled ones
_OURS, _THEIRS = "product", "loops"
# Queries for the numbers of traces, of receptions, and of pairs of a device and a beacon. Each pair
# has one reception per campaign, granted when the device was first detected at the beacon.
_COUNTS = {
    _OURS: (
        "SELECT count(*) FROM detection_trace",
        "SELECT count(*) FROM reception",
        "SELECT count(*) FROM statistic_device WHERE kind = 'beacon'",
    ),
    _THEIRS: (
        "SELECT count(*) FROM trace",
        "SELECT count(*) FROM reception",
        "SELECT count(*) FROM visitor",
    ),
}

Result = dict[str, float]
Processes = list[subprocess.Popen[bytes]]


def main() -> None:
    """Run the rounds of both pairs and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scenarios.whole", description=__doc__
    )
    parser.add_argument("--records", type=int, default=100_000, help="detections a round")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--broker", default="apache", help="apache, or host:port")
    parser.add_argument(
        "--database", help="postgresql:// URL of an administrator; default: a server is started"
    )
    add_json(parser)
    arguments = parser.parse_args()
    console, watch = Console(), MachineWatch()
    found: dict[str, list[Result]] = {_OURS: [], _THEIRS: []}
    with postgres(arguments.database) as admin_url:
        for number in range(arguments.rounds):
            for name in found:
                with database(admin_url) as url, database(admin_url) as other:
                    result = asyncio.run(_round(arguments, name, url, other))
                found[name].append(result)
                figures = f"{result['rate']:,.0f}/s, {result['processor_us']:.1f} us each"
                console.print(f"  round {number + 1}: {name} {figures}", highlight=False)
    findings = Findings(
        name="whole",
        command="python -m benchmarks.scenarios.whole",
        machine=watch.described(),
        options=as_options(arguments),
        sheets={"table": _sheet(found)},
        charts=[_chart(found)],
        rounds=found,
    )
    finish(console, findings, arguments.json)


async def _round(arguments: argparse.Namespace, name: str, url: str, other: str) -> Result:
    workload = workloads(arguments.records)["steady"]
    async with stage(arguments.broker, workload.catalog, database=url) as where:
        with tempfile.TemporaryDirectory() as directory:
            catalog = Path(directory) / "catalog.json"
            catalog.write_text(json.dumps(await exported(url)), encoding="utf-8")
            pair = _Pair(name, where, url if name == _OURS else other, catalog)
            return await asyncio.to_thread(pair.measured, workload, arguments.records)


class _Pair:
    """A trigger and a recorder: the product's, or the two loops.

    The pair runs twice. The first run takes the claims that the second, measured run finds.
    """

    def __init__(self, name: str, where: Stage, url: str, catalog: Path) -> None:
        self._name = name
        self._where = where
        self._url = make_url(url).render_as_string(hide_password=False)
        self._catalog = catalog

    def measured(self, workload: Workload, records: int) -> Result:
        """Run the pair twice, and return the figures of the second run.

        Raises SystemExit if the number of notifications or rows is wrong.
        """
        self._campaigns = workload.campaigns
        before = workload.earlier_records(records)
        taken = (len(before), len(before) * workload.campaigns)
        with self._running() as pair:
            self._handle(pair, before, taken)
        begins = self._where.topics.ends()
        granted = len(workload.notifications(records)) * workload.campaigns
        every = list(workload.records(records))
        warm = records // 10 // _LAP * _LAP
        of_warm = warm // _LAP * (_LAP - workload.held) * workload.campaigns
        warmed = (taken[0] + warm, taken[1] + of_warm)
        with self._running() as pair:
            self._handle(pair, every[:warm], warmed)
            begin, used = time.perf_counter(), [processor_seconds(each.pid) for each in pair]
            self._handle(pair, every[warm:], (taken[0] + records, taken[1] + granted))
            seconds, after = time.perf_counter() - begin, [processor_seconds(p.pid) for p in pair]
        if (sent := len(self._where.topics.notified(begins))) != granted:
            raise SystemExit(f"{self._name}: {sent:,} notifications, {granted:,} expected")
        count = records - warm
        trigger, recorder = (1e6 * (b - a) / count for a, b in zip(used, after, strict=True))
        costs = {"trigger_us": trigger, "recorder_us": recorder, "processor_us": trigger + recorder}
        return {"rate": count / seconds, **costs}

    def _handle(self, pair: Processes, records: list[Record], counts: tuple[int, int]) -> None:
        self._where.topics.publish(records)
        give_up = time.monotonic() + DRAIN_SECONDS
        wanted = (*counts, counts[1] // self._campaigns)
        while (found := asyncio.run(self._counts())) != wanted:
            if time.monotonic() > give_up or any(each.poll() is not None for each in pair):
                raise SystemExit(f"{self._name}: {found} traces, receptions, visits; not {wanted}")
            time.sleep(_POLL_SECONDS)

    async def _counts(self) -> tuple[int, ...]:
        connection = await asyncpg.connect(self._url)
        try:
            return tuple([await connection.fetchval(each) for each in _COUNTS[self._name]])
        finally:
            await connection.close()

    @contextlib.contextmanager
    def _running(self) -> Iterator[Processes]:
        if self._name == _OURS:
            with self._where.running("trigger") as first, self._where.running("recorder") as second:
                yield [first, second]
            return
        modules = ("confluent_loop", "recorder_loop")
        with contextlib.ExitStack() as stack:
            pair = [stack.enter_context(self._loop(module)) for module in modules]
            yield pair

    @contextlib.contextmanager
    def _loop(self, module: str) -> Iterator[subprocess.Popen[bytes]]:
        topics = self._where.topics
        environment: dict[str, Any] = {
            **os.environ,
            "BENCH_KAFKA": self._where.kafka,
            "BENCH_REDIS": self._where.redis,
            "BENCH_CATALOG": str(self._catalog),
            "BENCH_DETECTIONS": topics.names.detections,
            "BENCH_NOTIFICATIONS": topics.names.notifications,
            "BENCH_GROUP": topics.prefix,
            "BENCH_MAX_AGE": "86400",
            "BENCH_DATABASE": self._url,
        }
        command = [sys.executable, "-m", f"benchmarks.alternatives.{module}", _NEVER, "-1"]
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
            role = "recorder" if module == "recorder_loop" else ""
            group = GroupWatch(self._where.kafka, topics.prefix + role, topics.names.detections)
            try:
                wait(lambda: group.has_members(1), seconds=60.0, what=f"{module} reads")
                yield process
            finally:
                # On SIGTERM the loop leaves its consumer group. Otherwise the next member would
                # wait until the session of this one has timed out.
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_END_SECONDS)
                process.kill()


def _sheet(found: dict[str, list[Result]]) -> Sheet:
    pairs = list(zip(found[_OURS], found[_THEIRS], strict=True))
    ratio = Spread(other["processor_us"] / own["processor_us"] for own, other in pairs)
    rows = [
        [
            name,
            str(ratio) if name == _OURS else "1",
            *(
                str(Spread(each[name] for each in results))
                for name in ("processor_us", "trigger_us", "recorder_us", "rate")
            ),
        ]
        for name, results in found.items()
    ]
    columns = ["", "the loops' us over its", "processor, us each", "trigger", "recorder"]
    columns.append("detections/s")
    return Sheet("The whole job: trigger and recorder, 0.1 grants a detection", columns, rows)


def _chart(found: dict[str, list[Result]]) -> Chart:
    bars = [
        Spread(each["processor_us"] for each in results).bar(name)
        for name, results in found.items()
    ]
    return Chart("The whole job: processor time of a detection", "us", bars, lower=True)


if __name__ == "__main__":
    main()
