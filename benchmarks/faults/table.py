"""The outcomes as a table: for a terminal, and for docs/reliability.md."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.faults.fault import FaultOutcome

_HEADS = (
    "fault",
    "noticed after",
    "lasted",
    "well again after",
    "repeated",
    "calls given up",
    "outcome",
)


def show(console: Console, outcomes: Iterable[FaultOutcome], rate: float) -> None:
    """Print the table."""
    table = Table(*_HEADS, title=f"Faults at {rate:g} detections a second")
    for outcome in outcomes:
        table.add_row(*_cells(outcome))
    console.print(table)


def markdown(outcomes: Iterable[FaultOutcome]) -> str:
    """The table as Markdown."""
    rows = [_HEADS, ["---"] * len(_HEADS), *map(_cells, outcomes)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _cells(outcome: FaultOutcome) -> Sequence[str]:
    noticed = "" if outcome.noticed is None else f"{outcome.noticed:.1f} s"
    return (
        outcome.name,
        noticed,
        f"{outcome.lasted:.1f} s",
        f"{outcome.recovered:.1f} s",
        f"{outcome.repeats:,}",
        f"{outcome.given_up:,}",
        "; ".join(outcome.wrong) or "nothing missing",
    )
