"""`python -m benchmarks`: the trigger, compared with a floor and with alternatives."""

import argparse
import asyncio
from pathlib import Path

from rich.console import Console

from benchmarks.lineup import EVERYBODY, PRODUCT, TRIGGER, USUAL, beside
from benchmarks.machine import MachineWatch
from benchmarks.report import Result, Rounds, add_json, cost, figures, finish, rate, ratios
from benchmarks.rounds import SubjectError, rounds_of
from benchmarks.servers import servers
from benchmarks.workloads import workloads


def main() -> None:
    """Parse the arguments, run, print tables."""
    arguments = _arguments()
    console, watch = Console(), MachineWatch()
    if watch.warning:
        console.print(watch.warning)
    measured: dict[str, Rounds] = {}
    failures = asyncio.run(_measure(arguments, console, measured))
    sheets = [ratios(TRIGGER, measured), figures(measured)]
    finish(console, arguments, watch, sheets, measured, failures)
    of_product = tuple(f"{subject.name}," for subject in PRODUCT)
    if wrong := [each for each in failures if each.startswith(of_product)]:
        raise SystemExit("\n".join(wrong))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--records", type=int, default=100_000, help="detections a round")
    parser.add_argument("--rounds", type=int, default=3, help="rounds; medians are printed")
    parser.add_argument(
        "--broker",
        default="apache",
        help="apache (starts one: needs Java and Kafka's jars), or host:port",
    )
    parser.add_argument("--workloads", nargs="+", choices=workloads(1000), metavar="NAME")
    parser.add_argument(
        "--subjects",
        nargs="+",
        choices=[*EVERYBODY, "all"],
        default=USUAL,
        metavar="NAME",
        help=f"of {', '.join(EVERYBODY)}; or all that `make bench-alternatives` could build",
    )
    parser.add_argument(
        "--beside",
        type=Path,
        nargs="+",
        default=[],
        help="other checkouts, whose triggers run, too",
    )
    add_json(parser)
    return parser.parse_args()


async def _measure(
    arguments: argparse.Namespace, console: Console, measured: dict[str, Rounds]
) -> list[str]:
    """Fill in the results by workload and subject. Returns what could not be measured."""
    named = EVERYBODY if "all" in arguments.subjects else arguments.subjects
    chosen = [EVERYBODY[name] for name in named] + [beside(each) for each in arguments.beside]
    subjects = [subject for subject in chosen if subject.there]
    failures = [
        f"{subject.name}, left out: {subject.needs} is not there"
        for subject in chosen
        if not subject.there
    ]
    async with servers(arguments.broker) as running:
        for name, workload in workloads(arguments.records).items():
            if arguments.workloads is not None and name not in arguments.workloads:
                continue
            console.print(f"{name}: {workload.meaning}")
            runs = rounds_of(
                running, workload, arguments.records, subjects, rounds=arguments.rounds
            )
            async for number, subject_name, result in runs:
                line = str(result)
                if isinstance(result, SubjectError):
                    failures.append(line)
                    measured.get(name, {}).pop(subject_name, None)
                else:
                    measured.setdefault(name, {}).setdefault(subject_name, []).append(result)
                    line = f"{subject_name} {_line(result)}"
                console.print(f"  round {number + 1}: {line}", highlight=False)
    return failures


def _line(result: Result) -> str:
    """Time in each step; waiting counts, and partitions overlap, so it adds up to more than all."""
    steps = ", ".join(
        f"{name.removeprefix('seconds_')} {seconds:.2f} s"
        for name, seconds in result.items()
        if name.startswith("seconds_") and name != "seconds_processor"
    )
    figures = f"{rate(result):,.0f}/s, {cost(result):.1f} us of the processor each"
    return figures + (f"; {steps}" if steps else "")


if __name__ == "__main__":
    main()
