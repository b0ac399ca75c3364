"""`python -m benchmarks.recorder`: rows into PostgreSQL, beside a bare COPY of the same rows."""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator

import orjson
from confluent_kafka import Producer
from rich.console import Console
from rich.table import Table

from benchmarks.catalog import make_catalog
from benchmarks.recorder.postgres import database, postgres
from benchmarks.workloads import Workload
from engine.cli.embedded.servers import EmbeddedServers

_SUBJECT_SECONDS = 660.0


def main() -> None:
    """Parse the arguments, run, print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recorder", description=__doc__)
    parser.add_argument("--records", type=int, default=300_000, help="detections a round")
    parser.add_argument("--rounds", type=int, default=3, help="rounds; medians are printed")
    parser.add_argument("--kafka", help="host:port of a broker; default: the embedded one")
    parser.add_argument("--database", help="postgresql:// of an administrator; default: its own")
    arguments = parser.parse_args()
    console = Console()
    table = Table("workload", "subject", "rows/s", "of the COPY loop")
    for row in _measure(arguments, console):
        table.add_row(*row)
    console.print(table)


def _measure(arguments: argparse.Namespace, console: Console) -> Iterator[tuple[str, ...]]:
    with postgres(arguments.database) as admin_url:
        for workload in _workloads(arguments.records):
            console.print(f"{workload.name}: {workload.meaning}")
            rates: dict[str, list[float]] = {"copy": [], "recorder": []}
            for number in range(arguments.rounds):
                with database(admin_url) as url:
                    results = asyncio.run(_round(arguments, workload, number, url))
                for subject, result in results.items():
                    rates[subject].append(result["rows"] / result["seconds"])
                    console.print(f"  round {number + 1}: {subject} {rates[subject][-1]:,.0f}/s")
                    console.print("   ", _steps(result), highlight=False)
            floor = statistics.median(rates["copy"])
            for subject, measured in rates.items():
                rate = statistics.median(measured)
                yield workload.name, subject, f"{rate:,.0f}", f"{rate / floor:.0%}"


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
    arguments: argparse.Namespace, workload: Workload, number: int, url: str
) -> dict[str, dict[str, float]]:
    """The recorder writes the rows; the COPY loop writes the same ones again."""
    prefix = f"bench-{os.getpid()}-{workload.name}-{number}."
    async with EmbeddedServers() as servers:
        kafka = arguments.kafka or servers.kafka_bootstrap
        await make_catalog(url, workload.catalog)
        environment = os.environ | {
            "PROXIMITY_KAFKA_BOOTSTRAP_SERVERS": kafka,
            "PROXIMITY_REDIS_URL": servers.redis_url,
            "PROXIMITY_DATABASE_URL": url,
            "PROXIMITY_TOPIC_PREFIX": prefix,
            "PROXIMITY_GROUP_PREFIX": prefix,
            "PROXIMITY_LOG_LEVEL": "warning",
        }
        await asyncio.to_thread(_publish, kafka, prefix, workload, arguments.records)
        return {
            subject: await asyncio.to_thread(_run, subject, arguments.records, environment)
            for subject in ("recorder", "copy")
        }


def _publish(kafka: str, prefix: str, workload: Workload, count: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": kafka,
            "compression.type": "lz4",
            "batch.size": 1_000_000,
            "linger.ms": 50,
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    for name in ("notifications", "authentications"):
        producer.list_topics(f"{prefix}{name}", timeout=10.0)  # the embedded broker makes them
    for key, value in workload.records(count):
        producer.produce(f"{prefix}detections", value=value, key=key)
    left = producer.flush(60)
    if left:
        raise SystemExit(f"{left} records could not be published")


def _run(subject: str, count: int, environment: dict[str, str]) -> dict[str, float]:
    """On the first processor; the servers take what is left."""
    own = min(os.sched_getaffinity(0))
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.recorder.subjects", subject, str(count), str(own)],
        env=environment,
        stdout=subprocess.PIPE,
        timeout=_SUBJECT_SECONDS,
        check=True,
    )
    result: dict[str, float] = orjson.loads(done.stdout.splitlines()[-1])
    return result


if __name__ == "__main__":
    main()
