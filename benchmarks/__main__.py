"""`python -m benchmarks`: the trigger beside the floor, on two workloads, in one run."""

import argparse
import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import orjson
from rich.console import Console
from rich.table import Table

from benchmarks.publishing import publish_all
from benchmarks.workloads import Workload, make_catalog, workloads
from engine.cli.embedded.redis_server import EmbeddedRedis
from engine.cli.embedded.servers import EmbeddedServers

_SUBJECT_SECONDS = 360.0


def main() -> None:
    """Parse the arguments, run, print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--records", type=int, default=300_000, help="detections a round")
    parser.add_argument("--rounds", type=int, default=3, help="rounds; medians are printed")
    parser.add_argument("--kafka", help="host:port of a broker; default: the embedded one")
    arguments = parser.parse_args()
    console = Console()
    rows = asyncio.run(_measure(arguments, console))
    table = Table("workload", "subject", "detections/s", "of the floor", "notifications")
    for row in rows:
        table.add_row(*row)
    console.print(table)


async def _measure(arguments: argparse.Namespace, console: Console) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    with _servers_on_the_last_processor():
        for workload in workloads(arguments.records):
            console.print(f"{workload.name}: {workload.meaning}")
            rates: dict[str, list[float]] = {"floor": [], "trigger": []}
            notified = 0.0
            for number in range(arguments.rounds):
                round_ = _Round(arguments, workload, number)
                for subject, result in await round_.run():
                    rates[subject].append(result["records"] / result["seconds"])
                    notified = result.get("notifications", notified)
                    console.print(f"  round {number + 1}: {subject} {rates[subject][-1]:,.0f}/s")
                    console.print("   ", _steps(result), highlight=False)
            rows += _rows(workload, rates, notified)
    return rows


def _steps(result: dict[str, float]) -> str:
    """Time in each step; waiting counts, and partitions overlap, so it adds up to more than all."""
    return ", ".join(
        f"{name.removeprefix('seconds_')} {seconds:.2f} s"
        for name, seconds in result.items()
        if name.startswith("seconds_")
    )


def _rows(
    workload: Workload, rates: dict[str, list[float]], notified: float
) -> list[tuple[str, ...]]:
    floor = statistics.median(rates["floor"])
    trigger = statistics.median(rates["trigger"])
    return [
        (workload.name, "floor: getmany + decode", f"{floor:,.0f}", "100%", ""),
        (workload.name, "trigger", f"{trigger:,.0f}", f"{trigger / floor:.0%}", f"{notified:,.0f}"),
    ]


@contextlib.contextmanager
def _servers_on_the_last_processor() -> Iterator[None]:
    """Broker, Redis and this process on one processor, the subject alone on another."""
    mine = os.sched_getaffinity(0)
    if len(mine) > 1:
        os.sched_setaffinity(0, {max(mine)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, mine)


class _Round:
    """Fresh servers, the records published once, then each subject over the same records."""

    def __init__(self, arguments: argparse.Namespace, workload: Workload, number: int) -> None:
        self._arguments = arguments
        self._workload = workload
        self._prefix = f"bench-{os.getpid()}-{workload.name}-{number}."

    async def run(self) -> list[tuple[str, dict[str, float]]]:
        with tempfile.TemporaryDirectory() as directory:
            if self._arguments.kafka:
                redis = EmbeddedRedis()
                await redis.start()
                try:
                    return await self._subjects(self._arguments.kafka, redis.url, directory)
                finally:
                    await redis.stop()
            async with EmbeddedServers() as servers:
                return await self._subjects(servers.kafka_bootstrap, servers.redis_url, directory)

    async def _subjects(
        self, kafka: str, redis: str, directory: str
    ) -> list[tuple[str, dict[str, float]]]:
        database = f"sqlite:///{Path(directory) / 'catalog.sqlite3'}"
        await make_catalog(database, self._workload.campaigns)
        environment = os.environ | {
            "PROXIMITY_KAFKA_BOOTSTRAP_SERVERS": kafka,
            "PROXIMITY_REDIS_URL": redis,
            "PROXIMITY_DATABASE_URL": database,
            "PROXIMITY_TOPIC_PREFIX": self._prefix,
            "PROXIMITY_GROUP_PREFIX": self._prefix,
        }
        records = self._workload.records(self._arguments.records)
        await asyncio.to_thread(publish_all, kafka, f"{self._prefix}detections", records)
        return [
            (subject, await asyncio.to_thread(self._run, subject, environment))
            for subject in ("floor", "trigger")
        ]

    def _run(self, subject: str, environment: dict[str, str]) -> dict[str, float]:
        own = min(os.sched_getaffinity(1)) if os.cpu_count() else -1
        command = [sys.executable, "-m", "benchmarks.subjects", subject]
        done = subprocess.run(
            [*command, str(self._arguments.records), str(own)],
            env=environment,
            stdout=subprocess.PIPE,
            timeout=_SUBJECT_SECONDS,
            check=True,
        )
        result: dict[str, float] = orjson.loads(done.stdout.splitlines()[-1])
        return result


if __name__ == "__main__":
    main()
