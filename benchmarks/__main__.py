"""`python -m benchmarks`: the trigger beside the floor and beside other ways to do its job."""

import argparse
import asyncio
from pathlib import Path

import orjson
from rich.console import Console

from benchmarks.report import Rounds, as_json, cost, machine, print_tables, rate
from benchmarks.rounds import ALTERNATIVES, PRODUCT, Result, Subject, rounds_of
from benchmarks.servers import servers
from benchmarks.workloads import workloads


def main() -> None:
    """Parse the arguments, run, print tables."""
    arguments = _arguments()
    console = Console()
    before = machine()
    if before["busy"]:
        console.print(
            f"The machine is busy (load {before['load_before']}): believe the ratios of processor "
            "time, not the rates."
        )
    found = asyncio.run(_measure(arguments, console))
    print_tables(console, found)
    if arguments.json is not None:
        options = {name: str(value) for name, value in vars(arguments).items()}
        report = as_json(before, options, found)
        arguments.json.write_bytes(orjson.dumps(report, option=orjson.OPT_INDENT_2))


def _arguments() -> argparse.Namespace:
    subjects = [*PRODUCT, *ALTERNATIVES]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--records", type=int, default=100_000, help="detections a round")
    parser.add_argument("--rounds", type=int, default=3, help="rounds; medians are printed")
    parser.add_argument(
        "--broker",
        default="embedded",
        help="embedded, apache (starts one: needs Java and Kafka's jars), or host:port",
    )
    parser.add_argument("--workloads", nargs="+", choices=workloads(1000), metavar="NAME")
    parser.add_argument("--subjects", nargs="+", choices=subjects, default=subjects, metavar="NAME")
    parser.add_argument(
        "--beside",
        type=Path,
        nargs="+",
        default=[],
        help="other checkouts, whose triggers run, too",
    )
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    return parser.parse_args()


async def _measure(arguments: argparse.Namespace, console: Console) -> dict[str, Rounds]:
    every = PRODUCT | ALTERNATIVES
    subjects = [every[name] for name in arguments.subjects]
    subjects += [
        Subject(each.name, PRODUCT["trigger"].command, each.resolve()) for each in arguments.beside
    ]
    found: dict[str, Rounds] = {}
    async with servers(arguments.broker) as running:
        for name, workload in workloads(arguments.records).items():
            if arguments.workloads is not None and name not in arguments.workloads:
                continue
            console.print(f"{name}: {workload.meaning}")
            rounds = found.setdefault(name, {subject.name: [] for subject in subjects})
            measured = rounds_of(running, workload, arguments.records, subjects, arguments.rounds)
            async for number, subject, result in measured:
                rounds[subject].append(result)
                console.print(_line(number, subject, result), highlight=False)
    return found


def _line(number: int, subject: str, result: Result) -> str:
    """Time in each step; waiting counts, and partitions overlap, so it adds up to more than all."""
    steps = ", ".join(
        f"{name.removeprefix('seconds_')} {seconds:.2f} s"
        for name, seconds in result.items()
        if name.startswith("seconds_") and name != "seconds_processor"
    )
    figures = f"{rate(result):,.0f}/s, {cost(result):.1f} us of the processor each"
    return f"  round {number + 1}: {subject} {figures}" + (f"; {steps}" if steps else "")


if __name__ == "__main__":
    main()
