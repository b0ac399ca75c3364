"""Builds the page. All texts of a catalog are escaped, because account holders choose the names.

If an escape were missing, the document's policy would still prevent scripts and requests.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from typing import NamedTuple

from catalog.plain_text import for_terminal
from engine.cli.demo.reasons import WORDS
from engine.cli.replay.outcome import CampaignRow, Outcome, ReplayFindings
from engine.cli.replay.report.document import (
    html_document,
    report_asset,
    report_style,
    uplot_script,
    uplot_style,
)
from engine.cli.replay.report.series import plots
from engine.cli.replay.text import mostly, paired, summary_lines
from rules.model import Reason


class ReportColumn(NamedTuple):
    """The head of a column, and the style class of its cells.

    The classes are n for numbers and w for words that are not broken; names have none.
    """

    name: str
    style: str = ""


def write_page(findings: ReplayFindings) -> str:
    """The whole file."""
    data = plots(findings.outcomes)
    return html_document(
        "Replay",
        styles=[uplot_style(), report_style()],
        scripts=[uplot_script(), report_asset("assets/report.js")],
        body=_body(findings, {plot["id"] for plot in data["plots"]}),
        data=data,
    )


def _text(words: str) -> str:
    return escape(for_terminal(words))


def _body(findings: ReplayFindings, drawn: Container[str]) -> Iterator[str]:
    outcomes = findings.outcomes
    yield "<h1>What would have been sent</h1>"
    first, *notes = summary_lines(findings)
    made = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    yield f'<p class="soft">{_text(first[:1].upper() + first[1:])}. Made on {made}.</p>'
    yield from _tiles(findings)
    for note in notes[len(outcomes) :]:
        yield f'<p class="note">{_text(note[:1].upper() + note[1:])}.</p>'
    yield "<noscript><p class=note>The plots need JavaScript; the tables do not.</p></noscript>"
    yield from _plot("sent", "Notifications, by the venues' clocks", drawn)
    if len(outcomes) == 1:
        yield from _campaigns(outcomes[0])
    else:
        yield from _side_by_side(outcomes[0], outcomes[1])
    for number, outcome in enumerate(outcomes):
        suffix = "" if len(outcomes) == 1 else f": {outcome.name}"
        yield from _plot(f"reasons-{number}", f"Decisions of campaigns, by reason{suffix}", drawn)
        yield from _reasons(outcome, suffix)


def _tiles(findings: ReplayFindings) -> Iterator[str]:
    figures = [(f"{findings.decided:,}", "detections")]
    for each in findings.outcomes:
        suffix = "" if len(findings.outcomes) == 1 else f", {each.name}"
        figures += [(f"{each.sent:,}", f"notifications{suffix}")]
        figures += [(f"{each.devices:,}", f"devices that get one{suffix}")]
    yield '<div class="tiles">'
    for figure, words in figures:
        yield f"<div><b>{figure}</b><span>{_text(words)}</span></div>"
    yield "</div>"


def _plot(id_: str, title: str, drawn: Container[str]) -> Iterator[str]:
    yield f"<h2>{_text(title)}</h2>"
    yield f'<div class="plot" id="{id_}"></div>' if id_ in drawn else "<p>None.</p>"


def _campaigns(outcome: Outcome) -> Iterator[str]:
    columns = (
        ReportColumn("Campaign"),
        ReportColumn("Venue"),
        ReportColumn("Company"),
        ReportColumn("Sent", "n"),
        ReportColumn("Devices", "n"),
        ReportColumn("Held back", "n"),
        ReportColumn("Else mostly", "w"),
    )
    rows = [
        (
            *_names(row),
            f"{row.sent:,}",
            f"{row.devices:,}",
            f"{row.reasons.get(Reason.THROTTLED, 0):,}",
            mostly(row),
        )
        for row in outcome.campaigns
    ]
    yield from _table("Campaigns", columns, rows)


def _side_by_side(first: Outcome, second: Outcome) -> Iterator[str]:
    columns = (
        ReportColumn("Campaign"),
        ReportColumn("Venue"),
        ReportColumn("Company"),
        *(ReportColumn(f"Sent: {each.name}", "n") for each in (first, second)),
        *(ReportColumn(f"Only {each.name}", "n") for each in (first, second)),
        *(ReportColumn(f"Devices only {each.name}", "n") for each in (first, second)),
    )
    rows = []
    for pair in paired(first, second):
        named = next(row for row in pair if row is not None)
        rows.append(
            (
                *_names(named),
                *(_figure(row and row.sent) for row in pair),
                *(_figure(row and row.only_here) for row in pair),
                *(_figure(row and row.devices_only_here) for row in pair),
            )
        )
    yield from _table("Campaigns, side by side", columns, rows)


def _figure(number: int | None) -> str:
    return "–" if number is None else f"{number:,}"


def _names(row: CampaignRow) -> tuple[str, str, str]:
    campaign = row.campaign
    return campaign.name, campaign.place.venue, campaign.place.company


def _reasons(outcome: Outcome, suffix: str) -> Iterator[str]:
    columns = (
        ReportColumn("Reason", "w"),
        ReportColumn("Meaning"),
        ReportColumn("Detections", "n"),
    )
    rows = [
        (reason.value, WORDS[reason], f"{count:,}") for reason, count in outcome.detections.items()
    ]
    yield from _table(f"Detections, by the furthest check{suffix}", columns, rows)


def _table(
    title: str, columns: Sequence[ReportColumn], rows: Iterable[Sequence[str]]
) -> Iterator[str]:
    yield f'<h2>{_text(title)}</h2>\n<table class="table"><thead><tr>'
    yield "".join(f"<th{_class(each)}>{_text(each.name)}</th>" for each in columns)
    yield "</tr></thead><tbody>"
    for row in rows:
        cells = (
            f'<td{_class(each)} data-label="{_text(each.name)}">{_text(cell)}</td>'
            for each, cell in zip(columns, row, strict=True)
        )
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table>"


def _class(column: ReportColumn) -> str:
    return f' class="{column.style}"' if column.style else ""
