"""`python -m benchmarks.scenarios.growth`: the cost of a detection as the catalog grows.

Devices dwell, and 1% of the detections grant two campaigns. Each variant is measured in each round,
after a run that builds its index.
"""

import argparse
import asyncio
import tempfile
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from benchmarks.figures import Chart, Findings, Sheet, Spread, add_json, as_options, finish
from benchmarks.lineup import EVERYBODY, TRIGGER
from benchmarks.machine import MachineWatch
from benchmarks.report import Result, cost, rate
from benchmarks.rounds import Rounds
from benchmarks.servers import Servers, servers
from benchmarks.workloads import Workload

_PATIENCE = 1800.0  # an index of a million beacons is built first

Found = dict[str, list[Result]]


def main() -> None:
    """Parse the arguments, run, print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scenarios.growth", description=__doc__
    )
    parser.add_argument("--records", type=int, default=200_000, help="detections a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beacons", type=int, nargs="*", default=[1000, 100_000])
    parser.add_argument(
        "--closed", type=int, nargs="*", default=[0, 48, 198], help="closed campaigns of a beacon"
    )
    parser.add_argument("--broker", default="apache", help="apache, or host:port")
    add_json(parser)
    arguments = parser.parse_args()
    console, watch = Console(), MachineWatch()
    sheets: dict[str, Sheet] = {}
    charts: list[Chart] = []
    rounds: dict[str, Found] = {}
    records: int = arguments.records
    series = {
        "beacons": [_variant("beacons", records, beacons=each) for each in arguments.beacons],
        "campaigns": [_variant("campaigns", records, closed=each) for each in arguments.closed],
    }
    for name, variants in series.items():
        if variants:
            found = asyncio.run(_measure(arguments, variants, console))
            rounds[name] = found
            sheets[name] = _sheet(variants, found)
            charts.append(_chart(name, found))
    findings = Findings(
        name="growth",
        command="python -m benchmarks.scenarios.growth",
        machine=watch.described(),
        options=as_options(arguments),
        sheets=sheets,
        charts=charts,
        rounds=rounds,
    )
    finish(console, findings, arguments.json)


def _variant(series: str, records: int, *, beacons: int = 1000, closed: int = 0) -> Workload:
    name = f"growth-{series}-{beacons}-{2 + closed}"
    meaning = f"{beacons:,} beacons, {2 + closed} campaigns each, {closed} of them closed"
    return Workload(name, meaning, records // 100, 2, beacons=beacons, closed=closed)


async def _measure(
    arguments: argparse.Namespace, variants: list[Workload], console: Console
) -> Found:
    found: Found = {variant.meaning: [] for variant in variants}
    async with servers(arguments.broker) as running:
        with ExitStack() as directories:
            prepared = {}
            for variant in variants:
                console.print(variant.meaning)
                directory = Path(directories.enter_context(tempfile.TemporaryDirectory()))
                prepared[variant.meaning] = await _prepared(
                    running, variant, arguments.records, directory
                )
            for number in range(arguments.rounds):
                for meaning, runs in prepared.items():
                    result = await runs.run(EVERYBODY[TRIGGER])
                    found[meaning].append(result)
                    figures = f"{rate(result):,.0f}/s, {cost(result):.2f} us"
                    console.print(f"  round {number + 1}: {meaning}: {figures}", highlight=False)
    return found


async def _prepared(running: Servers, variant: Workload, records: int, directory: Path) -> Rounds:
    runs = Rounds(running, variant, records, directory, keep_index=True, patience=_PATIENCE)
    await runs.prepare(alternatives=False)
    await runs.run(EVERYBODY[TRIGGER])
    return runs


def _sheet(variants: list[Workload], found: Found) -> Sheet:
    least = found[variants[0].meaning]
    rows = []
    for variant in variants:
        results = found[variant.meaning]
        pairs = list(zip(results, least, strict=True))
        rows.append(
            [
                f"{variant.beacons:,}",
                f"{min(variant.beacons, variant.devices):,}",
                str(variant.campaigns),
                str(variant.closed),
                str(Spread(rate(own) / rate(one) for own, one in pairs)),
                str(Spread(cost(one) / cost(own) for own, one in pairs)),
                str(Spread(map(rate, results))),
                str(Spread(map(cost, results))),
            ]
        )
    columns = ["beacons", "met", "open each", "closed", "rate over the first's"]
    columns += ["the first's us over its", "detections/s", "processor, us each"]
    return Sheet("As the catalog grows (dwell)", columns, rows)


def _chart(name: str, found: Found) -> Chart:
    bars = [Spread(map(cost, results)).bar(meaning) for meaning, results in found.items()]
    return Chart(f"Processor time of a detection, by {name}", "us", bars, lower=True)


if __name__ == "__main__":
    main()
