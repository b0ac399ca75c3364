"""`python -m benchmarks.documents figures.json`: writes its tables into the documents.

A document has places for them: `<!-- figures crash:table -->` and `<!-- end -->`, each on a line of
its own. What stands between them is replaced; a place whose benchmark is not in the file stays.
"""

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.figures import Findings, Sheet
from benchmarks.lineup import ROOT
from benchmarks.machine import sentence
from benchmarks.store import read_all

_DOCUMENTS = (ROOT / "docs" / "performance.md", ROOT / "benchmarks" / "README.md")
_FIGURES = ROOT / ".cache" / "bench" / "figures" / "figures.json"
# What makes a run what it is, in the order in which it is told.
_TOLD = (
    *("broker", "workload", "workloads", "subjects", "records", "warm_records", "rounds"),
    *("beacons", "closed", "workers", "shares", "seconds", "clients"),
    *("devices", "campaigns", "calls", "answer", "rate", "grants", "claims", "busy"),
)
_PLACE = re.compile(
    r"(?P<head><!-- figures (?P<part>[a-z]+):(?P<sheet>[a-z]+) -->\n)"
    r"(?P<table>.*?)(?=<!-- end -->)",
    re.DOTALL,
)


def main() -> None:
    """Parse the arguments, write, say what was written."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.documents", description=__doc__)
    parser.add_argument("figures", type=Path, nargs="?", default=_FIGURES)
    parser.add_argument("--documents", type=Path, nargs="+", default=_DOCUMENTS)
    arguments = parser.parse_args()
    found = read_all(arguments.figures)
    for document in arguments.documents:
        before = document.read_text(encoding="utf-8")
        after, written = filled(before, found)
        document.write_text(after, encoding="utf-8")
        Console().print(f"{document}: {', '.join(written) or 'nothing'}", highlight=False)


def filled(text: str, found: Mapping[str, Findings]) -> tuple[str, list[str]]:
    """The document with its tables renewed, and the names of those."""
    written = []

    def replace(place: re.Match[str]) -> str:
        findings = found.get(place["part"])
        sheet = findings and findings.sheets.get(place["sheet"])
        if findings is None or not sheet:
            return place[0]
        written.append(f"{place['part']}:{place['sheet']}")
        table = "\n".join(table_lines(sheet))
        return f"{place['head']}{table}\n\n{_origin(findings)}\n"

    return _PLACE.sub(replace, text), written


def as_markdown(found: Mapping[str, Findings]) -> str:
    """All tables of a run."""
    lines = ["# Figures", ""]
    for name, findings in found.items():
        lines += [f"## {name}", ""]
        for sheet in findings.sheets.values():
            lines += [f"### {sheet.title}", "", *table_lines(sheet), ""]
        lines += [f"- {note}" for note in findings.notes]
        lines += ["", _origin(findings), ""]
    return "\n".join(lines)


def table_lines(sheet: Sheet) -> Iterator[str]:
    """Of a table in Markdown."""
    yield _row(sheet.columns)
    yield f"|{'---|' * len(sheet.columns)}"
    for row in sheet.rows:
        yield _row(row)


def _row(cells: Sequence[str]) -> str:
    escaped = (cell.replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"


def _origin(findings: Findings) -> str:
    given = [(name, findings.options.get(name)) for name in _TOLD]
    options = [f"--{name.replace('_', '-')} {value}" for name, value in given if value]
    return f"`{' '.join([findings.command, *options])}`; {sentence(findings.machine)}"


if __name__ == "__main__":
    main()
