"""The demo's figures and its summary: what was detected, what fired, what did not, and why."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from catalog.plain_text import for_terminal
from engine.cli.demo.walk import DemoCampaign
from engine.cli.output import REASON_WORDS
from engine.process.metrics import Metrics
from rules.model import Reason
from rules.schedule import Schedule

_NAMES = 23


class EngineFigures(NamedTuple):
    """The engine's counts so far; `latency` is the mean in seconds."""

    detections: Mapping[str, int]
    throttled: int
    published: int
    latency: float

    @property
    def decided(self) -> int:
        """The number of decided detections."""
        return sum(self.detections.values())

    @property
    def counted(self) -> int:
        """The detections that SQL counts: those at active places of active venues."""
        at_no_place = list(Reason)[: list(Reason).index(Reason.NO_CAMPAIGN)]
        return self.decided - sum(self.detections.get(reason, 0) for reason in at_no_place)


def read_figures(metrics: Metrics) -> EngineFigures:
    """The figures in the metrics of this process."""
    latency = {
        s.name.rpartition("_")[2]: s.value for s in next(iter(metrics.latency.collect())).samples
    }
    return EngineFigures(
        detections=_by_label(metrics.detections, "reason"),
        throttled=_by_label(metrics.decisions, "reason").get("throttled", 0),
        published=sum(_by_label(metrics.notifications, "format").values()),
        latency=latency["sum"] / max(1.0, latency["count"]),
    )


def _by_label(counter: Any, label: str) -> dict[str, int]:
    samples = [s for family in counter.collect() for s in family.samples]
    counts = ((s.labels[label], round(s.value)) for s in samples if s.name.endswith("_total"))
    return {name: count for name, count in counts if count}


class DemoResults(NamedTuple):
    """The data of the summary.

    `sends`, `phones` and `first` are by campaign id; `at` is the instant (epoch s) to which the
    reasons refer, `walked` the recorded seconds.
    """

    campaigns: Sequence[DemoCampaign]
    figures: EngineFigures
    sends: Mapping[int, int]
    phones: Mapping[int, set[str]]
    first: Mapping[int, bytes]
    at: float
    walked: float
    took: float
    walkers: int
    arrivals: int
    beacons: int
    recorded: tuple[int, int]


def print_summary(console: Console, results: DemoResults) -> None:
    """Print the summary; the most important lines come last."""
    figures = results.figures
    places = [place for each in results.campaigns for place in each.places]
    aimed_at = {place.id for place in places if place.kind == "beacon"}
    if results.first:
        _print_example(console, results)
    _print_lines(
        console,
        f"{figures.decided - results.arrivals:,} real readings, taken by {results.walkers} phones "
        f"in {results.walked / 60:.0f} minutes of walking",
        f"through a university library, were replayed in {results.took:.0f} s. They came from",
        f"{results.beacons} beacons, {len(aimed_at)} of which have campaigns. Before, each phone",
        "told a position on the square (a geofence) and scanned the QR code at the door.",
        "",
    )
    by_count = sorted(figures.detections.items(), key=lambda count: -count[1])
    detected = [(f"{count:,}", reason, REASON_WORDS[Reason(reason)]) for reason, count in by_count]
    silent = [
        ("0", each.campaign.name, silence_reason(each, results.at))
        for each in results.campaigns
        if not results.sends.get(each.campaign.id)
    ]
    _print_table(console, "What was detected", detected)
    _print_table(console, "What did not fire, and why", silent)
    _print_table(console, "What fired", [*_fired(results)])
    _print_lines(
        console,
        f"{sum(results.sends.values()):,} notifications; {figures.throttled:,} times a campaign "
        "was held back by its delay.",
        f"From detection to notification: {figures.latency * 1000:.0f} ms on average.",
        f"SQL has counted {results.recorded[0]:,} detections at active places and "
        f"{results.recorded[1]:,} notifications.",
        "",
    )


def _print_example(console: Console, results: DemoResults) -> None:
    """Print one whole notification, of the connector campaign if it has one."""
    formats = {campaign.id: campaign.format for campaign, _ in results.campaigns}
    of_connectors = [number for number in results.first if formats.get(number) == "connector"]
    number = (of_connectors or list(results.first))[0]
    source = " (the content is from the customer's service)" if of_connectors else ""
    shown = msgspec.json.format(results.first[number]).decode()
    _print_lines(console, f"A notification, as a push sender gets it{source}:", shown, "")


def _fired(results: DemoResults) -> list[tuple[str, str, str]]:
    rows = []
    for campaign, _ in results.campaigns:
        if count := results.sends.get(campaign.id, 0):
            phones = len(results.phones[campaign.id])
            to = f"{campaign.format}, to {phones} {'phone' if phones == 1 else 'phones'}"
            if campaign.format == "connector":
                to += "; asked of its service"
            rows.append((f"{count:,}", campaign.name, to))
    return rows


def _print_table(console: Console, title: str, rows: Sequence[tuple[str, str, str]]) -> None:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(justify="right", min_width=6, no_wrap=True)
    table.add_column(no_wrap=True, min_width=_NAMES)
    table.add_column()
    for row in rows:
        table.add_row(*(Text(for_terminal(cell)) for cell in row))
    console.print(Text(title, style="bold"), table, Text(), sep="\n")


def _print_lines(console: Console, *lines: str) -> None:
    console.print(*map(Text, lines), sep="\n", soft_wrap=True)


def silence_reason(silent: DemoCampaign, at: float) -> str:
    """Why a campaign sent nothing around `at` (epoch s), by the rules' own verdict."""
    campaign, places = silent
    reason = Schedule(campaign).verdict(at).reason
    if reason is not None:
        return REASON_WORDS[reason]
    if not any(place.active for place in places):
        return "it has no place that is switched on"
    return "no phone came near enough to its places"
