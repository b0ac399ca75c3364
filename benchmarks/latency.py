"""`python -m benchmarks.latency`: from detection to notification, at shares of capacity.

Every detection grants (sweep), of a device that nobody knows. Capacity is the highest rate that is
kept up with while the load generator and the consumer of the notifications run beside the trigger.
It is found first. Then detections come at a quarter, a half and three quarters of it, open loop.
With `--rates` they come at these instead, and nothing is searched."""

import argparse
import asyncio

from rich.console import Console

from benchmarks.load import PERCENTILES, OpenLoop, Traffic, numbered
from benchmarks.machine import MachineWatch
from benchmarks.report import Sheet, add_json, finish
from benchmarks.stage import Stage, stage
from benchmarks.topics import QUIET

_WARM_SECONDS = 3.0
_BEACONS = 1000
_FIRST_RATE = 1000.0  # detections a second, of the search for the capacity
_SEARCHES = 5  # after the first rate that is too high
_SEARCH_SECONDS = 6.0
_KEPT_UP_MS = 400.0  # p99 below which a rate is kept up with: the lag does not grow


def main() -> None:
    """Parse the arguments, run, print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__)
    parser.add_argument("--shares", type=int, nargs="+", default=[25, 50, 75], help="per cent")
    parser.add_argument("--rates", type=float, nargs="+", help="detections a second")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=15.0, help="at each load")
    parser.add_argument("--broker", default="apache", help="apache, or host:port")
    add_json(parser)
    arguments = parser.parse_args()
    console, watch = Console(), MachineWatch()
    loads = asyncio.run(_measure(arguments, console))
    columns = ["a second", *(f"p{each:g}" for each in PERCENTILES)]
    columns += ["most", "sent late, p99", "missing"]
    title = f"Milliseconds from detection to notification, {arguments.partitions} partitions"
    finish(
        console,
        arguments,
        watch,
        [Sheet(title, columns, [*map(_row, loads)])],
        [
            {"rate": rate, "latency": loop.latencies.as_json(), "late": loop.late.as_json()}
            for rate, loop in loads
        ],
    )


Load = tuple[float, OpenLoop]


async def _measure(arguments: argparse.Namespace, console: Console) -> list[Load]:
    async with stage(arguments.broker, 1, partitions=arguments.partitions) as where:
        return await asyncio.to_thread(_run, where, arguments, console)


def _run(where: Stage, arguments: argparse.Namespace, console: Console) -> list[Load]:
    with where.running("trigger"):
        _loaded(where, _FIRST_RATE, _WARM_SECONDS)
        rates: list[float] = arguments.rates
        if rates is None:
            capacity = _capacity(where, console)
            rates = [capacity * share / 100 for share in arguments.shares]
        return [(rate, _loaded(where, rate, arguments.seconds)) for rate in rates]


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
    loop.run(traffic)
    return loop


def _row(load: Load) -> list[str]:
    rate, loop = load
    return [
        f"{rate:,.0f}",
        *(f"{loop.latencies.milliseconds(each):,.1f}" for each in (*PERCENTILES, 100.0)),
        f"{loop.late.milliseconds(99.0):,.1f}",
        f"{loop.unanswered:,}",
    ]


if __name__ == "__main__":
    main()
