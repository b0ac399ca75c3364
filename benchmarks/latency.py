"""`python -m benchmarks.latency`: from detection to notification, at shares of capacity.

Every detection grants (sweep), of a device that nobody knows. Capacity is the highest rate that is
kept up with while the load generator and the consumer of the notifications run beside the trigger.
It is found first. Then detections come at a quarter, a half and three quarters of it, open loop."""

import argparse
import asyncio
from typing import Any

from rich.console import Console

from benchmarks.load import PERCENTILES, OpenLoop, Traffic, numbered
from benchmarks.machine import MachineWatch
from benchmarks.report import Sheet, add_json, finish
from benchmarks.stage import Stage, stage
from benchmarks.topics import QUIET
from benchmarks.workloads import Workload

_WARM_SECONDS = 3.0
_SETTLE_SECONDS = 10.0
_BEACONS = 1000
_FIRST_RATE = 1000.0  # detections a second, of the search for the capacity
_SEARCHES = 5  # after the first rate that is too high
_SEARCH_SECONDS = 6.0
_KEPT_UP_MS = 400.0  # p99 below which a rate is kept up with: the lag does not grow


def main() -> None:
    """Parse the arguments, run, print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__)
    parser.add_argument("--shares", type=int, nargs="+", default=[25, 50, 75], help="per cent")
    parser.add_argument("--seconds", type=float, default=15.0, help="at each share")
    parser.add_argument("--capacity", type=float, help="detections a second; default: searched")
    parser.add_argument("--broker", default="apache", help="apache, or host:port")
    add_json(parser)
    arguments = parser.parse_args()
    console, watch = Console(), MachineWatch()
    capacity, rows = asyncio.run(_measure(arguments, console))
    columns = ["load", "a second", *(f"p{each:g}" for each in PERCENTILES)]
    columns += ["most", "sent late, p99", "missing"]
    title = f"Milliseconds from detection to notification; capacity {capacity:,.0f}/s"
    sheet = Sheet(title, columns, [_row(share, rate, loop) for share, rate, loop in rows])
    rounds = [_raw(share, rate, loop) for share, rate, loop in rows]
    finish(console, arguments, watch, [sheet], rounds)


Rows = list[tuple[int, float, OpenLoop]]


async def _measure(arguments: argparse.Namespace, console: Console) -> tuple[float, Rows]:
    workload = Workload("sweep", "a new device each time", 1, 1)
    async with stage(arguments.broker, workload.catalog) as where:
        return await asyncio.to_thread(_run, where, arguments, console)


def _run(where: Stage, arguments: argparse.Namespace, console: Console) -> tuple[float, Rows]:
    rows: Rows = []
    with where.running("trigger"):
        _loaded(where, _FIRST_RATE, _WARM_SECONDS)
        capacity: float = arguments.capacity or _capacity(where, console)
        for share in arguments.shares:
            rate = capacity * share / 100
            loop = _loaded(where, rate, arguments.seconds)
            rows.append((share, rate, loop))
            p50, p99 = (loop.latencies.milliseconds(each) for each in (50.0, 99.0))
            figures = f"{rate:,.0f}/s: p50 {p50:,.1f} ms, p99 {p99:,.1f} ms"
            console.print(f"  {share}%, {figures}", highlight=False)
    return capacity, rows


def _capacity(where: Stage, console: Console) -> float:
    """The highest rate, to some per cent, that is kept up with: doubled until one is not, and then
    halved in between."""
    kept_up, too_high, rate = 0.0, float("inf"), _FIRST_RATE
    searches = _SEARCHES
    while searches:
        loop = _loaded(where, rate, _SEARCH_SECONDS)
        p99 = loop.latencies.milliseconds(99.0)
        console.print(f"  searching: {rate:,.0f}/s, p99 {p99:,.0f} ms", highlight=False)
        if p99 < _KEPT_UP_MS and not loop.unanswered:
            kept_up = rate
        else:
            too_high = rate
        rate = min(2 * rate, (kept_up + too_high) / 2)
        searches -= too_high < float("inf")
    console.print(f"capacity {kept_up:,.0f} detections/s")
    return kept_up


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
    of = loop.latencies
    return [
        f"{share}%",
        f"{rate:,.0f}",
        *(f"{of.milliseconds(each):,.1f}" for each in (*PERCENTILES, 100.0)),
        f"{loop.late.milliseconds(99.0):,.1f}",
        f"{loop.unanswered:,}",
    ]


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
