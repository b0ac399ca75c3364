"""What the demo says at its end."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from catalog.plain_text import for_terminal
from engine.demo.figures import Figures
from engine.demo.reasons import WORDS, Entry, why_silent
from engine.demo.screen import latency_words
from rules.model import Reason


class Results(NamedTuple):
    """Everything that the summary tells. `sends` and `phones` are by campaign id; `at` is the
    instant (epoch s) for which the reasons hold, `walked` the recorded seconds."""

    entries: Sequence[Entry]
    figures: Figures
    sends: Mapping[int, int]
    phones: Mapping[int, int]
    first: Sequence[bytes]
    at: float
    walked: float
    took: float
    walkers: int
    beacons: int


def print_summary(console: Console, results: Results) -> None:
    """Print it all."""
    figures = results.figures
    aimed_at = {beacon.id for entry in results.entries for beacon in entry.beacons}
    _say(
        console,
        f"{figures.decided:,} real readings, taken by {results.walkers} phones in "
        f"{results.walked / 60:.0f} minutes of walking through a university library, "
        f"were replayed in {results.took:.0f} s.",
        f"They came from {results.beacons} beacons, {len(aimed_at)} of which have campaigns.",
    )
    _print_table(console, "What was heard", heard(figures.detections))
    _print_table(console, "What fired", fired(results))
    _print_table(console, "What did not fire, and why", silent(results))
    _say(
        console,
        f"Held back by the campaigns' cache delays: {figures.held_back:,} sends, "
        "to phones that had just got the same.",
        f"From detection to acknowledged message: {latency_words(figures)}.",
    )
    if results.first:
        _say(console, "The first notification of each format, as a push sender gets it:")
    for value in results.first:
        console.print(_pretty(value), highlight=console.is_terminal, markup=False, soft_wrap=True)


def heard(detections: Mapping[str, int]) -> list[tuple[str, str, str]]:
    """Rows of count, reason and what it means, the most frequent first."""
    ordered = sorted(detections.items(), key=lambda count: -count[1])
    return [(f"{count:,}", reason, WORDS[Reason(reason)]) for reason, count in ordered]


def fired(results: Results) -> list[tuple[str, str, str]]:
    """Rows of count, campaign and to how many phones."""
    rows = []
    for entry in results.entries:
        campaign = entry.campaign
        if count := results.sends.get(campaign.id, 0):
            phones = results.phones[campaign.id]
            to = f"{campaign.format}, to {phones} {'phone' if phones == 1 else 'phones'}"
            if campaign.format == "connector":
                to += "; handed to the connector role as calls"
            rows.append((f"{count:,}", campaign.name, to))
    return rows


def silent(results: Results) -> list[tuple[str, str, str]]:
    """Rows of nothing, campaign and why."""
    return [
        ("0", entry.campaign.name, why_silent(entry, results.at))
        for entry in results.entries
        if not results.sends.get(entry.campaign.id)
    ]


def _print_table(console: Console, title: str, rows: Sequence[tuple[str, str, str]]) -> None:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(justify="right", min_width=7, no_wrap=True)
    table.add_column(no_wrap=True, min_width=24)
    table.add_column()
    for row in rows:
        table.add_row(*(Text(for_terminal(cell)) for cell in row))
    console.print(Text(title, style="bold"), table, Text(), sep="\n")


def _say(console: Console, *lines: str) -> None:
    shown: list[RenderableType] = [Text(line) for line in lines]
    console.print(*shown, Text(), sep="\n")


def _pretty(value: bytes) -> str:
    """A line for each field."""
    fields = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
    lines = [f'  "{name}": {bytes(raw).decode()}' for name, raw in fields.items()]
    return "{\n" + ",\n".join(lines) + "\n}"
