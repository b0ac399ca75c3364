"""Shows the results of a replay: as text, JSON lines, CSV, and one HTML page."""

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, TextIO, get_args
from uuid import UUID

from jinja2 import Environment, PackageLoader, StrictUndefined

from catalog.plain_text import for_csv, for_terminal
from engine.cli.output import LENGTH_NAMES, REASON_WORDS, count_of, print_table, say
from engine.cli.replay.decisions import (
    CampaignRow,
    CatalogReplay,
    Grant,
    HourRow,
    Outcome,
    VisitTally,
)
from engine.kafka.messages import format_instant
from engine.trigger.grants import notification_ids
from rules.model import Reason
from rules.visits import LENGTHS, VisitKind

_MOST_HOURS = 48
_SENT_COLUMNS = (
    *("catalog", "id", "detected_at", "company", "venue", "campaign_id", "campaign"),
    *("format", "beacon", "udid", "only_here"),
)


@dataclass(repr=False)  # asyncio formats a result: that takes long for a year's
class ReplayFindings:
    """The results of the whole replay.

    `records` were read, of which `undecodable` are not detections; `decided` were in the period.
    `begins_cold`: the claims from before the period are unknown.
    """

    source: str
    begins_cold: bool
    records: int = 0
    undecodable: int = 0
    first_fault: str = ""
    decided: int = 0
    seconds: float = 0.0
    outcomes: Sequence[Outcome] = ()


class ReportTable(NamedTuple):
    """A table for people. The last `numbers` columns are numbers.

    `most` is their greatest value if they are to be drawn as bars, else 0.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: int
    most: int = 0


def print_findings(findings: ReplayFindings) -> None:
    """Print all results; if there are many hours, by day."""
    for line in summary_lines(findings):
        say(line)
    for table in (*tables(findings), *times(findings.outcomes)):
        say("")
        say(table.title)
        print_table(table.header, table.rows, numbers=table.numbers)


def summary_lines(findings: ReplayFindings) -> Iterator[str]:
    """The results in sentences: how much was replayed, a line for each catalog, and notes."""
    rate = findings.decided / max(findings.seconds, 0.001)
    yield (
        f"replayed {findings.decided:,} detections of {findings.source} in "
        f"{findings.seconds:.1f} s ({rate:,.0f}/s)"
    )
    for each in findings.outcomes:
        yield f"{each.name}: {each.sent:,} notifications to {count_of(each.devices, 'device')}"
    if findings.undecodable:
        yield (
            f"{findings.undecodable:,} of {findings.records:,} records are not detections, the "
            f"first: {findings.first_fault}"
        )
    if findings.begins_cold:
        yield (
            "the claims from before are unknown: a campaign may show a notification that its "
            "cache delay forbade (--warm-up replays the time before)"
        )
    campaigns = (row for each in findings.outcomes for row in each.campaigns)
    if any(row.sent and row.format == "connector" for row in campaigns):
        yield "customers' services are assumed to answer every call with content"


def tables(findings: ReplayFindings) -> Iterator[ReportTable]:
    """Detections by reason for each catalog, and the campaigns, side by side if there are two."""
    outcomes = findings.outcomes
    for outcome in outcomes:
        suffix = "" if len(outcomes) == 1 else f", {outcome.name}"
        counts = outcome.detections.items()
        rows = [(reason.value, REASON_WORDS[reason], f"{count:,}") for reason, count in counts]
        header = ("reason", "meaning", "detections")
        yield ReportTable(f"Detections, by the furthest check{suffix}", header, rows, 1)
    yield _campaigns(outcomes[0]) if len(outcomes) == 1 else _side_by_side(*outcomes)
    if any(outcome.visits for outcome in outcomes):
        yield _visits(outcomes)


def _campaigns(outcome: Outcome) -> ReportTable:
    header = ("venue", "campaign", "else mostly", "sent", "devices", "held back")
    rows = []
    for row in outcome.campaigns:
        others = [each for each in row.reasons if each not in (Reason.GRANTED, Reason.THROTTLED)]
        mostly = others[0] if others else "" if row.reasons else "no detection"
        figures = (row.sent, row.devices, row.reasons.get(Reason.THROTTLED, 0))
        rows.append((row.venue, row.campaign, mostly, *(f"{each:,}" for each in figures)))
    return ReportTable("Campaigns", header, rows, 3)


def _side_by_side(first: Outcome, second: Outcome) -> ReportTable:
    """The campaigns of both catalogs; those that differ most come first."""
    pairs: dict[object, list[CampaignRow | None]] = {}
    for number, outcome in enumerate((first, second)):
        for row in outcome.campaigns:
            key = row.campaign_id or (row.company, row.venue, row.campaign)
            pairs.setdefault(key, [None, None])[number] = row
    rows = []
    for pair in sorted(
        pairs.values(), key=lambda pair: -sum(row.only_here or 0 for row in pair if row)
    ):
        named = pair[0] or pair[1]
        figures = [
            "-" if row is None else f"{getattr(row, figure):,}"
            for figure in ("sent", "only_here", "devices_only_here")
            for row in pair
        ]
        rows.append((*((named.venue, named.campaign) if named else ()), *figures))
    header = ["venue", "campaign"]
    for prefix in ("sent: ", "only ", "devices only "):
        header += [prefix + first.name, prefix + second.name]
    return ReportTable("Campaigns side by side", header, rows, len(header) - 2)


def _visits(outcomes: Sequence[Outcome]) -> ReportTable:
    figures = ("visits", "back in 5 min", "mean", *LENGTH_NAMES)
    rows = []
    for kind in get_args(VisitKind):
        for outcome in outcomes:
            tally = outcome.visits.get(kind, VisitTally())
            ended = tally.lengths.total()
            mean = f"{tally.seconds / ended / 60:.1f} min" if ended else "-"
            counts = (f"{tally.lengths[minutes]:,}" for minutes in LENGTHS)
            named = (kind, outcome.name, f"{tally.visits:,}", f"{tally.flaps:,}", mean)
            rows.append((*named, *counts))
    return ReportTable("Visits", ("place", "settings", *figures), rows, len(figures))


def times(outcomes: Sequence[Outcome]) -> Iterator[ReportTable]:
    """Notifications by hour of the venues' clocks, or by day if there are many hours."""
    sent = [[row for row in each.rows if row.reason == Reason.GRANTED] for each in outcomes]
    hours = {row.hour[:13] for rows in sent for row in rows}
    by_day = len(hours) > _MOST_HOURS
    counts = [Counter[str]() for _ in outcomes]
    for rows, by_time in zip(sent, counts, strict=True):
        for row in rows:
            at = row.hour[:10] if by_day else f"{row.hour[:13].replace('T', ' ')}:00"
            by_time[at] += row.detections
    table = [(at, *(f"{each[at]:,}" for each in counts)) for at in sorted(set().union(*counts))]
    names = [each.name for each in outcomes] if len(outcomes) > 1 else ["sent"]
    if table:
        unit = "day" if by_day else "hour"
        title = f"Notifications by {unit}, by the venues' clocks"
        most = max(max(each.values(), default=0) for each in counts)
        yield ReportTable(title, (unit, *names), table, len(counts), most)


def json_lines(findings: ReplayFindings) -> Iterator[dict[str, Any]]:
    """One object a line; `kind` is replay, reason, campaign, visits or hour."""
    yield {
        "kind": "replay",
        "source": findings.source,
        "records": findings.records,
        "undecodable": findings.undecodable,
        "first_fault": findings.first_fault or None,
        "detections": findings.decided,
        "seconds": round(findings.seconds, 3),
        "begins_cold": findings.begins_cold,
        "notifications": {each.name: each.sent for each in findings.outcomes},
        "devices": {each.name: each.devices for each in findings.outcomes},
    }
    for outcome in findings.outcomes:
        for reason, count in outcome.detections.items():
            line = {"catalog": outcome.name, "reason": reason.value, "detections": count}
            yield {"kind": "reason", **line}
        for row in outcome.campaigns:
            yield {"kind": "campaign", "catalog": outcome.name, **row._asdict()}
        for kind, tally in outcome.visits.items():
            yield {
                "kind": "visits",
                "catalog": outcome.name,
                "place": kind,
                "visits": tally.visits,
                "flaps": tally.flaps,
                "seconds": round(tally.seconds),
                "lengths": {str(minutes): tally.lengths[minutes] for minutes in LENGTHS},
            }
        for hour in outcome.rows:
            yield {"kind": "hour", "catalog": outcome.name, **hour._asdict()}


def write_csv(findings: ReplayFindings, stream: TextIO) -> None:
    """Write the hours, after a header."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(("catalog", *HourRow._fields))
    for outcome in findings.outcomes:
        writer.writerows(for_csv((outcome.name, *row)) for row in outcome.rows)


class SentCsv:
    """Writes every notification as CSV during the replay. The file names devices: personal data."""

    def __init__(self, stream: TextIO, *, compared: bool) -> None:
        self._writer = csv.writer(stream, lineterminator="\n")
        self._compared = compared
        self._writer.writerow(_SENT_COLUMNS)

    def add(self, replay: CatalogReplay, grants: Sequence[Grant], only: set[int]) -> None:
        """Write the notifications of a catalog.

        `only` are the positions of those that the other catalog does not send.
        """
        for position, grant in enumerate(grants):
            campaign = replay.campaign_of(grant)
            (number,) = notification_ids(grant.detection, (grant.campaign,))
            cells = (
                replay.catalog.name,
                str(UUID(bytes=number)),
                format_instant(grant.detection.detected_at),
                *campaign.place,
                *(campaign.id, campaign.name, campaign.format),
                *(grant.beacon.reference.name, grant.udid),
                str(position in only).lower() if self._compared else "",
            )
            self._writer.writerow(for_csv(cells))


def write_page(findings: ReplayFindings) -> str:
    """An HTML page of the tables, with bars for the times. It loads nothing and runs no script.

    Texts are escaped, because account holders choose the names.
    """
    loader = PackageLoader("engine.cli.replay", "")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    environment.filters["plain"] = for_terminal
    return environment.get_template("report.html").render(
        lines=list(summary_lines(findings)),
        made=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        tables=list(tables(findings)),
        times=list(times(findings.outcomes)),
    )
