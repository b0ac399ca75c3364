"""`python -m benchmarks.scenarios.latency`: from detection to notification, at shares of capacity.

Every detection grants (sweep). Capacity is measured first: a burst, and the time until all of it is
committed. Then detections come at a quarter, a half and three quarters of it, open loop.
"""

import argparse
import asyncio
from typing import Any

from rich.console import Console

from benchmarks.figures import Bar, Chart, Findings, Sheet, add_json, as_options, finish
from benchmarks.load.generator import OpenLoop
from benchmarks.load.latency import PERCENTILES, Latencies
from benchmarks.load.traffic import Traffic, numbered
from benchmarks.machine import MachineWatch
from benchmarks.publishing import QUIET
from benchmarks.scenarios.stage import Stage, stage
from benchmarks.workloads import Workload

_WARM_SECONDS = 3.0
_SETTLE_SECONDS = 10.0
_BEACONS = 1000


def main() -> None:
    """Parse the arguments, run, print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scenarios.latency", description=__doc__
    )
    parser.add_argument("--shares", type=int, nargs="+", default=[25, 50, 75], help="per cent")
    parser.add_argument("--seconds", type=float, default=15.0, help="at each share")
    parser.add_argument("--burst", type=int, default=60_000, help="detections, for the capacity")
    parser.add_argument("--capacity", type=float, help="detections a second; default: measured")
    parser.add_argument("--broker", default="apache", help="apache, or host:port")
    add_json(parser)
    arguments = parser.parse_args()
    console, watch = Console(), MachineWatch()
    capacity, rows = asyncio.run(_measure(arguments, console))
    columns = ["load", "a second", *(f"p{each:g}" for each in PERCENTILES)]
    columns += ["most", "sent late, p99", "missing"]
    findings = Findings(
        name="latency",
        command="python -m benchmarks.scenarios.latency",
        machine=watch.described(),
        options=as_options(arguments),
        sheets={
            "table": Sheet(
                f"Milliseconds from detection to notification; capacity {capacity:,.0f}/s",
                columns,
                [_row(share, rate, loop) for share, rate, loop in rows],
            )
        },
        charts=[_chart(rows)],
        rounds=[_raw(share, rate, loop) for share, rate, loop in rows],
    )
    finish(console, findings, arguments.json)


Rows = list[tuple[int, float, OpenLoop]]


async def _measure(arguments: argparse.Namespace, console: Console) -> tuple[float, Rows]:
    workload = Workload("sweep", "a new device each time", arguments.burst, 1)
    async with stage(arguments.broker, workload.catalog) as where:
        burst = list(workload.records(arguments.burst))
        return await asyncio.to_thread(_run, where, burst, arguments, console)


def _run(
    where: Stage,
    burst: list[tuple[bytes, bytes]],
    arguments: argparse.Namespace,
    console: Console,
) -> tuple[float, Rows]:
    rows: Rows = []
    with where.running("trigger") as process:
        capacity: float | None = arguments.capacity
        if capacity is None:
            done, seconds = where.drained(process, "trigger", burst)
            capacity = done / seconds
            console.print(f"capacity {capacity:,.0f} detections/s")
        _loaded(where, capacity / 4, _WARM_SECONDS)
        for share in arguments.shares:
            rate = capacity * share / 100
            loop = _loaded(where, rate, arguments.seconds)
            rows.append((share, rate, loop))
            p50, p99 = (loop.latencies.milliseconds(each) for each in (50.0, 99.0))
            figures = f"{rate:,.0f}/s: p50 {p50:,.1f} ms, p99 {p99:,.1f} ms"
            console.print(f"  {share}%, {figures}", highlight=False)
    return capacity, rows


def _loaded(where: Stage, rate: float, seconds: float) -> OpenLoop:
    loop = OpenLoop(
        kafka={"bootstrap.servers": where.kafka, "log_level": QUIET},
        detections=where.topics.names.detections,
        notifications=where.topics.names.notifications,
    )
    traffic = Traffic(rate=rate, seconds=seconds, beacons=numbered(_BEACONS), pattern="sweep")
    loop.run(traffic, settle=_SETTLE_SECONDS)
    return loop


def _row(share: int, rate: float, loop: OpenLoop) -> list[str]:
    of: Latencies = loop.latencies
    return [
        f"{share}%",
        f"{rate:,.0f}",
        *(f"{of.milliseconds(each):,.1f}" for each in (*PERCENTILES, 100.0)),
        f"{loop.late.milliseconds(99.0):,.1f}",
        f"{loop.unanswered:,}",
    ]


def _chart(rows: Rows) -> Chart:
    bars = []
    for share, _, loop in rows:
        for percentile in PERCENTILES:
            value = loop.latencies.milliseconds(percentile)
            bars.append(Bar(f"{share}%, p{percentile:g}", value, value, value))
    return Chart("Detection to notification", "ms", bars, lower=True)


def _raw(share: int, rate: float, loop: OpenLoop) -> dict[str, Any]:
    return {
        "share": share,
        "rate": rate,
        "unanswered": loop.unanswered,
        "latency": loop.latencies.as_json(),
        "late": loop.late.as_json(),
    }


if __name__ == "__main__":
    main()
