"""`python -m benchmarks.replay`: a replay compared with its floor, from a file and from Kafka."""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.catalog import make_catalog
from benchmarks.child import figures_of
from benchmarks.machine import first_processor, on_the_last_processor
from benchmarks.publishing import publish_all
from benchmarks.workloads import Workload, workloads
from engine.cli.embedded.servers import EmbeddedBroker

_SUBJECT_SECONDS = 360.0
# Each subject behind its floor.
_SUBJECTS = ("file-floor", "file", "kafka-floor", "kafka")
_MEANINGS = {
    "file-floor": "floor: read lines + decode",
    "file": "replay FILE",
    "kafka-floor": "floor: getmany + decode",
    "kafka": "replay (Kafka)",
}


class _Rates(NamedTuple):
    """Detections a second, by the clock and of the processor."""

    clock: float
    processor: float


def main() -> None:
    """Parse the arguments, run, print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replay", description=__doc__)
    parser.add_argument("--records", type=int, default=300_000, help="detections a round")
    parser.add_argument("--rounds", type=int, default=3, help="rounds; medians are printed")
    parser.add_argument("--workload", choices=["dwell", "sweep"], default="dwell")
    parser.add_argument("--kafka", help="host:port of a broker; default: the embedded one")
    arguments = parser.parse_args()
    console = Console()
    workload = workloads(arguments.records)[arguments.workload]
    console.print(f"{workload.name}: {workload.meaning}")
    rates = _measure(arguments, workload, console)
    by_clock, of_processor = "detections/s", "a second of the processor"
    table = Table("workload", "subject", by_clock, of_processor, "of the floor")
    for name in _SUBJECTS:
        clock, processor = map(statistics.median, zip(*rates[name], strict=True))
        floor = statistics.median(rate for _, rate in rates[f"{name.split('-')[0]}-floor"])
        share = f"{processor / floor:.0%}"
        row = (workload.name, _MEANINGS[name], f"{clock:,.0f}", f"{processor:,.0f}", share)
        table.add_row(*row)
    console.print(table)


def _measure(
    arguments: argparse.Namespace, workload: Workload, console: Console
) -> dict[str, list[_Rates]]:
    rates: dict[str, list[_Rates]] = {name: [] for name in _SUBJECTS}
    # The subjects run one after the other on the first processor; the broker gets the last one.
    with on_the_last_processor():
        for number in range(arguments.rounds):
            for name, result in _round(arguments, workload, number):
                clock, processor = result["seconds"], result["seconds_processor"]
                found = _Rates(result["records"] / clock, result["records"] / processor)
                rates[name].append(found)
                text = f"{name} {found.clock:,.0f}/s, {found.processor:,.0f} of the processor"
                console.print(f"  round {number + 1}: {text}", highlight=False)
    return rates


def _round(
    arguments: argparse.Namespace, workload: Workload, number: int
) -> list[tuple[str, dict[str, float]]]:
    """The detections written and published once, then each subject over them."""
    prefix = f"bench-replay-{os.getpid()}-{number}."
    with tempfile.TemporaryDirectory() as directory:
        database = f"sqlite:///{Path(directory) / 'catalog.sqlite3'}"
        asyncio.run(make_catalog(database, workload.catalog))
        file = Path(directory) / "detections.jsonl"
        values = (value for _, value in workload.records(arguments.records))
        file.write_bytes(b"\n".join(values))
        broker = None if arguments.kafka else EmbeddedBroker()
        try:
            kafka = arguments.kafka or (broker.bootstrap_servers if broker else "")
            publish_all(kafka, f"{prefix}detections", workload.records(arguments.records))
            environment = os.environ | {
                "PROXIMITY_KAFKA_BOOTSTRAP_SERVERS": kafka,
                "PROXIMITY_DATABASE_URL": database,
                "PROXIMITY_TOPIC_PREFIX": prefix,
                "PROXIMITY_GROUP_PREFIX": prefix,
            }
            command = (str(file), str(arguments.records), str(first_processor()))
            return [(name, _run(name, command, environment)) for name in _SUBJECTS]
        finally:
            if broker is not None:
                broker.close()


def _run(name: str, arguments: tuple[str, ...], environment: dict[str, str]) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.replay.subjects", name, *arguments]
    return asyncio.run(figures_of(command, environment=environment, seconds=_SUBJECT_SECONDS))


if __name__ == "__main__":
    main()
