"""The result of a benchmark: tables for the console, and all figures as JSON. Ratios come first."""

import argparse
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from rich.console import Console
from rich.table import Table

from benchmarks.machine import MachineWatch, sentence

Result = dict[str, float]
Rounds = dict[str, list[Result]]  # by subject; the results of the same rounds


class Spread:
    """Median, minimum and maximum of some rounds."""

    def __init__(self, values: Iterable[float]) -> None:
        ordered = sorted(values)
        self.median = statistics.median(ordered)
        self.least, self.most = ordered[0], ordered[-1]

    def __str__(self) -> str:
        form = ",.0f" if self.median >= 100 else ".1f" if self.median >= 10 else ".2f"
        if self.least == self.most:
            return format(self.median, form)
        return f"{self.median:{form}} ({self.least:{form}} to {self.most:{form}})"


class Sheet(NamedTuple):
    """A table of formatted cells."""

    title: str
    columns: list[str]
    rows: list[list[str]]


def rate(result: Result) -> float:
    """Records a second."""
    return result["records"] / result["seconds"]


def cost(result: Result) -> float:
    """Microseconds of processor time a record."""
    return 1e6 * result["seconds_processor"] / result["records"]


def ratios(own: str, workloads: Mapping[str, Rounds]) -> Sheet:
    """`own` compared with each other subject, round by round; above 1 it is ahead."""
    rows = []
    for workload, rounds in workloads.items():
        for name, results in rounds.items():
            pairs = list(zip(rounds.get(own, []), results, strict=False))
            if pairs and name != own:
                rates = Spread(rate(mine) / rate(other) for mine, other in pairs)
                costs = Spread(cost(other) / cost(mine) for mine, other in pairs)
                rows.append([workload, name, str(rates), str(costs)])
    columns = ["workload", f"{own} beside", "rate over its", "its processor time over ours"]
    return Sheet(f"{own} beside others: above 1 it is ahead", columns, rows)


def figures(workloads: Mapping[str, Rounds]) -> Sheet:
    """The figures of each subject."""
    rows = []
    for workload, rounds in workloads.items():
        for subject, results in rounds.items():
            if results:
                peak = max(each.get("peak_bytes", 0.0) for each in results) / 2**20
                cells = [str(Spread(map(of, results))) for of in (rate, cost)]
                rows.append([workload, subject, *cells, f"{peak:,.0f}"])
    columns = ["workload", "subject", "records/s", "processor, us each", "MiB"]
    return Sheet("Each subject, one processor", columns, rows)


def finish(
    console: Console,
    arguments: argparse.Namespace,
    watch: MachineWatch,
    sheets: Iterable[Sheet],
    rounds: Any,
    notes: Iterable[str] = (),
) -> None:
    """Print tables, notes and the machine; write everything to the file that `--json` names."""
    sheets, notes, machine = list(sheets), list(notes), watch.described()
    for sheet in sheets:
        table = Table(*sheet.columns, title=sheet.title)
        for row in sheet.rows:
            table.add_row(*row)
        console.print(table)
    for note in notes:
        console.print(note, highlight=False)
    console.print(sentence(machine), highlight=False)
    if arguments.json is not None:
        found = {"machine": machine, "sheets": sheets, "notes": notes, "rounds": rounds}
        arguments.json.write_bytes(orjson.dumps(found, option=orjson.OPT_INDENT_2, default=list))


def add_json(parser: argparse.ArgumentParser) -> None:
    """The option that all benchmarks have."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
