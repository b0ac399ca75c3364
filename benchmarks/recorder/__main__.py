"""`python -m benchmarks.recorder`: rows into PostgreSQL, compared with a bare COPY."""

import argparse
import asyncio
import os
import sys

from rich.console import Console

from benchmarks.catalog import make_catalog
from benchmarks.child import figures_of
from benchmarks.figures import Chart, Findings, Sheet, Spread, add_json, as_options, finish
from benchmarks.machine import MachineWatch, first_processor, on_the_last_processor
from benchmarks.recorder.postgres import database, postgres
from benchmarks.servers import Servers, servers
from benchmarks.topics import BenchTopics
from benchmarks.workloads import Workload

_SUBJECT_SECONDS = 660.0

Results = dict[str, list[dict[str, float]]]  # by subject


def main() -> None:
    """Parse the arguments, run, print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recorder", description=__doc__)
    parser.add_argument("--records", type=int, default=300_000, help="detections a round")
    parser.add_argument("--rounds", type=int, default=3, help="rounds; medians are printed")
    parser.add_argument("--broker", default="embedded", help="embedded, apache, or host:port")
    parser.add_argument("--database", help="postgresql:// of an administrator; default: its own")
    add_json(parser)
    arguments = parser.parse_args()
    console, watch = Console(), MachineWatch()
    with on_the_last_processor(), postgres(arguments.database) as admin_url:
        found = asyncio.run(_measure(arguments, admin_url, console))
    findings = Findings(
        name="recorder",
        command="python -m benchmarks.recorder",
        machine=watch.described(),
        options=as_options(arguments),
        sheets={"table": _sheet(found)},
        charts=[
            Chart(f"{name}: rows a second", "/s", [_spread(r).bar(n) for n, r in results.items()])
            for name, results in found.items()
        ],
        rounds=found,
    )
    finish(console, findings, arguments.json)


async def _measure(
    arguments: argparse.Namespace, admin_url: str, console: Console
) -> dict[str, Results]:
    found: dict[str, Results] = {}
    async with servers(arguments.broker) as running:
        for workload in _workloads(arguments.records):
            console.print(f"{workload.name}: {workload.meaning}")
            of_workload = found.setdefault(workload.name, {"copy": [], "recorder": []})
            for number in range(arguments.rounds):
                with database(admin_url) as url:
                    results = await _round(running, arguments.records, workload, number, url)
                for subject, result in results.items():
                    of_workload[subject].append(result)
                    console.print(f"  round {number + 1}: {subject} {_rate(result):,.0f}/s")
                    console.print("   ", _steps(result), highlight=False)
    return found


def _sheet(found: dict[str, Results]) -> Sheet:
    rows = []
    for workload, subjects in found.items():
        for subject, results in subjects.items():
            pairs = zip(results, subjects["copy"], strict=True)
            ratio = Spread(_rate(own) / _rate(bare) for own, bare in pairs)
            cost = Spread(1e6 * each["seconds_processor"] / each["rows"] for each in results)
            rows.append([workload, subject, str(ratio), str(_spread(results)), str(cost)])
    columns = ["workload", "subject", "rate over copy", "rows/s", "processor, us a row"]
    return Sheet("The recorder beside a bare COPY of the same rows", columns, rows)


def _rate(result: dict[str, float]) -> float:
    return result["rows"] / result["seconds"]


def _spread(results: list[dict[str, float]]) -> Spread:
    return Spread(map(_rate, results))


def _workloads(count: int) -> list[Workload]:
    return [
        Workload("dwell", "devices stay at a beacon, 100 detections each", count // 100, 0),
        Workload("sweep", "a new device each time", count, 0),
    ]


def _steps(result: dict[str, float]) -> str:
    """Time in each step; waiting counts, and partitions overlap, so it adds up to more than all."""
    steps = [
        f"{name.removeprefix('seconds_')} {seconds:.2f} s"
        for name, seconds in result.items()
        if name.startswith("seconds_")
    ]
    peak = [f"memory {result['peak_mib']:.0f} MiB"] if "peak_mib" in result else []
    return ", ".join(steps + peak)


async def _round(
    running: Servers, records: int, workload: Workload, number: int, url: str
) -> dict[str, dict[str, float]]:
    """The recorder writes the rows; the COPY loop writes the same ones again."""
    prefix = f"bench-{os.getpid()}-{workload.name}-{number}."
    await make_catalog(url, workload.catalog)
    environment = os.environ | {
        "PROXIMITY_KAFKA_BOOTSTRAP_SERVERS": running.kafka,
        "PROXIMITY_REDIS_URL": running.redis,
        "PROXIMITY_DATABASE_URL": url,
        "PROXIMITY_TOPIC_PREFIX": prefix,
        "PROXIMITY_GROUP_PREFIX": prefix,
        "PROXIMITY_REDIS_PREFIX": prefix,
        "PROXIMITY_LOG_LEVEL": "warning",
    }
    topics = BenchTopics(running.kafka, prefix, by_mention=not running.keeps_all)
    await asyncio.to_thread(topics.publish, workload.records(records))
    return {subject: await _run(subject, records, environment) for subject in ("recorder", "copy")}


async def _run(subject: str, count: int, environment: dict[str, str]) -> dict[str, float]:
    """On the first processor; the servers have the last one."""
    module = [sys.executable, "-m", "benchmarks.recorder.subjects", subject]
    command = [*module, str(count), str(first_processor())]
    return await figures_of(command, environment=environment, seconds=_SUBJECT_SECONDS)


if __name__ == "__main__":
    main()
