"""The demo's summary: what was detected, what fired, what did not fire, and why."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from catalog.plain_text import for_terminal
from engine.cli.demo.figures import EngineFigures
from engine.cli.demo.reasons import WORDS, DemoCampaign, silence_reason
from engine.cli.demo.screen import latency_words
from rules.model import Reason

_NAMES = 23


class DemoResults(NamedTuple):
    """The data of the summary.

    `sends`, `phones` and `first` are by campaign id; `at` is the instant (epoch s) to which the
    reasons refer, `walked` the recorded seconds; `recorded` has SQL's counts of detections of
    active beacons and of notifications.
    """

    campaigns: Sequence[DemoCampaign]
    figures: EngineFigures
    sends: Mapping[int, int]
    phones: Mapping[int, int]
    first: Mapping[int, bytes]
    at: float
    walked: float
    took: float
    walkers: int
    beacons: int
    recorded: tuple[int, int]


def print_summary(console: Console, results: DemoResults) -> None:
    """Print the summary; the most important lines come last."""
    figures = results.figures
    aimed_at = {beacon.id for _, beacons in results.campaigns for beacon in beacons}
    if results.first:
        _print_example(console, results)
    _print_lines(
        console,
        f"{figures.decided:,} real readings, taken by {results.walkers} phones in "
        f"{results.walked / 60:.0f} minutes of walking",
        f"through a university library, were replayed in {results.took:.0f} s. They came from",
        f"{results.beacons} beacons, {len(aimed_at)} of which have campaigns.",
    )
    _print_table(console, "What was detected", detection_rows(figures.detections))
    _print_table(console, "What did not fire, and why", silent_campaign_rows(results))
    _print_table(console, "What fired", notification_rows(results))
    total = sum(results.sends.values())
    _print_lines(
        console,
        f"{total:,} notifications; {figures.throttled:,} times a campaign was held back by its "
        "delay.",
        f"From detection to notification: {latency_words(figures)}.",
        f"SQL has counted {results.recorded[0]:,} detections of active beacons and "
        f"{results.recorded[1]:,} notifications.",
    )


def _print_example(console: Console, results: DemoResults) -> None:
    """Print one whole notification, of the connector campaign if it has one."""
    formats = {campaign.id: campaign.format for campaign, _ in results.campaigns}
    of_connectors = [number for number in results.first if formats.get(number) == "connector"]
    number = (of_connectors or list(results.first))[0]
    source = " (the content is from the customer's service)" if of_connectors else ""
    _print_lines(console, f"A notification, as a push sender gets it{source}:", end=False)
    for line in _pretty(results.first[number]).splitlines():
        shown = Text(line)
        if console.is_terminal:
            shown.truncate(console.width, overflow="ellipsis")
        console.print(shown, soft_wrap=True)
    console.print()


def detection_rows(detections: Mapping[str, int]) -> list[tuple[str, str, str]]:
    """Rows of count, reason and its meaning, the most frequent first."""
    ordered = sorted(detections.items(), key=lambda count: -count[1])
    return [(f"{count:,}", reason, WORDS[Reason(reason)]) for reason, count in ordered]


def notification_rows(results: DemoResults) -> list[tuple[str, str, str]]:
    """Rows of count, campaign and number of phones."""
    rows = []
    for campaign, _ in results.campaigns:
        if count := results.sends.get(campaign.id, 0):
            phones = results.phones[campaign.id]
            to = f"{campaign.format}, to {phones} {'phone' if phones == 1 else 'phones'}"
            if campaign.format == "connector":
                to += "; asked of its service"
            rows.append((f"{count:,}", campaign.name, to))
    return rows


def silent_campaign_rows(results: DemoResults) -> list[tuple[str, str, str]]:
    """Rows of the campaigns that did not fire, with the reason."""
    return [
        ("0", each.campaign.name, silence_reason(each, results.at))
        for each in results.campaigns
        if not results.sends.get(each.campaign.id)
    ]


def _print_table(console: Console, title: str, rows: Sequence[tuple[str, str, str]]) -> None:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(justify="right", min_width=6, no_wrap=True)
    table.add_column(no_wrap=True, min_width=_NAMES)
    table.add_column()
    for row in rows:
        table.add_row(*(Text(for_terminal(cell)) for cell in row))
    console.print(Text(title, style="bold"), table, Text(), sep="\n")


def _print_lines(console: Console, *lines: str, end: bool = True) -> None:
    shown: list[RenderableType] = [Text(line) for line in lines]
    console.print(*shown, *([Text()] if end else []), sep="\n")


def _pretty(value: bytes) -> str:
    """The message with one line per field."""
    fields = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
    lines = [f'  "{name}": {bytes(raw).decode()}' for name, raw in fields.items()]
    return "{\n" + ",\n".join(lines) + "\n}"
