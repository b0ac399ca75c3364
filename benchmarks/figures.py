"""The findings of a benchmark; console, JSON, documents and plots are made from them."""

import argparse
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from sqlalchemy import make_url

from benchmarks.machine import sentence


class Spread:
    """Median, minimum and maximum of some rounds."""

    def __init__(self, values: Iterable[float]) -> None:
        ordered = sorted(values)
        self.median = statistics.median(ordered)
        self.least, self.most = ordered[0], ordered[-1]

    def __str__(self) -> str:
        whole = all(each == int(each) for each in (self.median, self.least, self.most))
        form = ",.0f" if whole or self.median >= 100 else ".1f" if self.median >= 10 else ".2f"
        if self.least == self.most:
            return format(self.median, form)
        return f"{self.median:{form}} ({self.least:{form}} to {self.most:{form}})"

    def bar(self, label: str) -> "Bar":
        """The spread as a bar of a plot."""
        return Bar(label=label, median=self.median, least=self.least, most=self.most)


class Bar(msgspec.Struct, frozen=True):
    """One bar of a plot, with its whisker."""

    label: str
    median: float
    least: float
    most: float


class Chart(msgspec.Struct, frozen=True):
    """Bars under one title. `lower` says that less is better."""

    title: str
    unit: str
    bars: list[Bar]
    lower: bool = False


class Sheet(msgspec.Struct, frozen=True):
    """A table of formatted cells."""

    title: str
    columns: list[str]
    rows: list[list[str]]


class Findings(msgspec.Struct):
    """The findings of one benchmark. Documents name its sheets `<name>:<sheet>`; ratios first."""

    name: str
    command: str
    machine: dict[str, Any]
    options: dict[str, str]
    sheets: dict[str, Sheet]
    charts: list[Chart] = []
    notes: list[str] = []
    rounds: Any = None

    def show(self, console: Console) -> None:
        """All tables, and the machine."""
        for sheet in self.sheets.values():
            table = Table(*sheet.columns, title=sheet.title)
            for row in sheet.rows:
                table.add_row(*row)
            console.print(table)
        for note in self.notes:
            console.print(note, highlight=False)
        console.print(sentence(self.machine).replace("**", ""), highlight=False)


def as_options(arguments: argparse.Namespace) -> dict[str, str]:
    """The options of a command, for its findings; no secrets."""
    given = {name: value for name, value in vars(arguments).items() if value is not None}
    return {name: _as_option(name, value) for name, value in given.items() if name != "json"}


def _as_option(name: str, value: Any) -> str:
    if name == "database":
        return make_url(value).render_as_string(hide_password=True)
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def finish(console: Console, findings: Findings, file: Path | None) -> None:
    """Print the findings, and write them to `file`."""
    findings.show(console)
    if file is not None:
        file.write_bytes(msgspec.json.format(msgspec.json.encode(findings), indent=1))


def read(file: Path) -> Findings:
    """The findings that `finish` wrote."""
    return msgspec.json.decode(file.read_bytes(), type=Findings)


def add_json(parser: argparse.ArgumentParser) -> None:
    """The option that all benchmarks have."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
