"""`python -m benchmarks.scenarios.workers`: one worker and two, whole processes, nothing pinned."""

import argparse
import asyncio

from rich.console import Console

from benchmarks.figures import Chart, Findings, Sheet, Spread, add_json, as_options, finish
from benchmarks.machine import MachineWatch
from benchmarks.outside import peak_bytes, processor_seconds
from benchmarks.scenarios.stage import Stage, stage
from benchmarks.workloads import workloads

Result = dict[str, float]


def main() -> None:
    """Parse the arguments, run, print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scenarios.workers", description=__doc__
    )
    parser.add_argument("--records", type=int, default=300_000, help="detections a round")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--workload", choices=["dwell", "scatter", "sweep"], default="dwell")
    parser.add_argument("--broker", default="apache", help="apache, or host:port")
    add_json(parser)
    arguments = parser.parse_args()
    console, watch = Console(), MachineWatch()
    found = asyncio.run(_measure(arguments, console))
    findings = Findings(
        name="workers",
        command="python -m benchmarks.scenarios.workers",
        machine=watch.described(),
        options=as_options(arguments),
        sheets={"table": _sheet(found)},
        charts=[_chart(found)],
        rounds=found,
    )
    finish(console, findings, arguments.json)


async def _measure(arguments: argparse.Namespace, console: Console) -> dict[int, list[Result]]:
    workload = workloads(arguments.records)[arguments.workload]
    found: dict[int, list[Result]] = {count: [] for count in arguments.workers}
    async with stage(arguments.broker, workload.catalog) as where:
        for number in range(arguments.rounds):
            for count in arguments.workers:
                await where.forget()
                records = list(workload.records(arguments.records))
                result = await asyncio.to_thread(_round, where, count, records)
                found[count].append(result)
                figures = f"{result['rate']:,.0f}/s, {result['processor_us']:.1f} us each"
                console.print(f"  round {number + 1}: {count}: {figures}", highlight=False)
    return found


def _round(where: Stage, workers: int, records: list[tuple[bytes, bytes]]) -> Result:
    with where.running("trigger", workers=workers) as process:
        begin = processor_seconds(process.pid)
        done, seconds = where.drained(process, "trigger", records)
        used = processor_seconds(process.pid) - begin
        peak = peak_bytes(process.pid)
    return {
        "rate": done / seconds,
        "processor_us": 1e6 * used / len(records),
        "peak_bytes": peak,
    }


def _sheet(found: dict[int, list[Result]]) -> Sheet:
    least = min(found)
    rows = []
    for count, results in found.items():
        ratios = Spread(
            own["rate"] / one["rate"] for own, one in zip(results, found[least], strict=True)
        )
        rate = Spread(each["rate"] for each in results)
        cost = Spread(each["processor_us"] for each in results)
        peak = max(each["peak_bytes"] for each in results) / 2**20
        rows.append([str(count), str(ratios), str(rate), str(cost), f"{peak:,.0f}"])
    columns = ["workers", f"rate over that of {least}", "detections/s", "processor, us each"]
    columns.append("MiB, all")
    return Sheet("Workers", columns, rows)


def _chart(found: dict[int, list[Result]]) -> Chart:
    bars = [
        Spread(each["rate"] for each in results).bar(f"{count} workers")
        for count, results in found.items()
    ]
    return Chart("Detections a second, by workers", "/s", bars)


if __name__ == "__main__":
    main()
