"""`python -m benchmarks`: the trigger, compared with a floor and with alternatives."""

import argparse
import asyncio
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from benchmarks.lineup import EVERYBODY, PRODUCT, TRIGGER, USUAL, Subject, beside
from benchmarks.machine import MachineWatch
from benchmarks.report import Result, Rounds, add_json, cost, figures, finish, rate, ratios
from benchmarks.rounds import SubjectError, rounds_of
from benchmarks.servers import servers
from benchmarks.workloads import Workload, workloads


class Measured(NamedTuple):
    """Results by workload and subject, and what could not be measured."""

    workloads: dict[str, Rounds]
    failures: list[str]


def main() -> None:
    """Parse the arguments, run, print tables."""
    arguments = _arguments()
    console, watch = Console(), MachineWatch()
    if watch.warning:
        console.print(watch.warning)
    measured = asyncio.run(_measure(arguments, console))
    sheets = [ratios(TRIGGER, measured.workloads), figures(measured.workloads)]
    finish(console, arguments, watch, sheets, measured.workloads, measured.failures)
    of_product = tuple(f"{subject.name}," for subject in PRODUCT)
    if wrong := [each for each in measured.failures if each.startswith(of_product)]:
        raise SystemExit("\n".join(wrong))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--records", type=int, default=100_000, help="detections a round")
    parser.add_argument("--rounds", type=int, default=3, help="rounds; medians are printed")
    parser.add_argument(
        "--broker",
        default="embedded",
        help="embedded, apache (starts one: needs Java and Kafka's jars), or host:port",
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
        "--warm-records",
        type=int,
        default=1_000_000,
        help="other detections that a subject which is to be warm handles first",
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


async def _measure(arguments: argparse.Namespace, console: Console) -> Measured:
    measured = Measured({}, [])
    named = EVERYBODY if "all" in arguments.subjects else arguments.subjects
    chosen = [EVERYBODY[name] for name in named] + [beside(each) for each in arguments.beside]
    for subject in chosen:
        if not subject.there:
            measured.failures.append(f"{subject.name}, left out: {subject.needs} is not there")
    subjects = [subject for subject in chosen if subject.there]
    async with servers(arguments.broker) as running:
        for name, workload in workloads(arguments.records).items():
            if arguments.workloads is not None and name not in arguments.workloads:
                continue
            console.print(f"{name}: {workload.meaning}")
            runs = rounds_of(
                running,
                workload,
                arguments.records,
                _able(subjects, workload),
                rounds=arguments.rounds,
                warm_records=arguments.warm_records,
            )
            async for number, subject_name, result in runs:
                _note(measured, console, name, number, subject_name, result)
    return measured


def _able(subjects: list[Subject], workload: Workload) -> list[Subject]:
    return [each for each in subjects if each.keeps_state or not workload.held]


def _note(
    measured: Measured,
    console: Console,
    workload: str,
    number: int,
    subject: str,
    result: Result | SubjectError,
) -> None:
    if isinstance(result, SubjectError):
        measured.failures.append(str(result))
        measured.workloads.get(workload, {}).pop(subject, None)
        console.print(f"  round {number + 1}: {result}", highlight=False)
        return
    measured.workloads.setdefault(workload, {}).setdefault(subject, []).append(result)
    console.print(_line(number, subject, result), highlight=False)


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
