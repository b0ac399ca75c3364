"""Shows the results of a replay: as text and JSON lines; and writes each notification as CSV."""

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TextIO
from uuid import UUID

from catalog.plain_text import for_csv
from engine.cli.output import LENGTH_NAMES, count_of, print_table, say
from engine.cli.replay.decisions import Grant, Outcome
from engine.kafka.messages import format_instant
from engine.trigger.grants import notification_ids
from rules.model import Reason
from rules.visits import LENGTHS

_MOST_HOURS = 48
# Title, header, rows, and how many of the last columns are numbers.
ReportTable = tuple[str, Sequence[str], Sequence[Sequence[str]], int]
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

    def note_fault(self, place: str, detail: str) -> None:
        """A record is no detection."""
        self.undecodable += 1
        self.first_fault = self.first_fault or f"{place}: {detail}"


def print_findings(findings: ReplayFindings) -> None:
    """Print all results; if there are many hours, by day."""
    for line in _summary(findings):
        say(line)
    outcomes = findings.outcomes
    for title, header, rows, numbers in (
        *map(_reasons, outcomes),
        _campaigns(outcomes),
        _visits(outcomes),
        _times(outcomes),
    ):
        if rows:
            say("")
            say(title)
            print_table(header, rows, numbers=numbers)


def _summary(findings: ReplayFindings) -> Iterator[str]:
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
    if any(row.sent and row.campaign.format == "connector" for row in campaigns):
        yield "customers' services are assumed to answer every call with content"


def _reasons(outcome: Outcome) -> ReportTable:
    counts = outcome.detections.items()
    rows = [(reason.value, f"{count:,}") for reason, count in counts]
    title = f"Detections by the furthest check, {outcome.name}"
    return title, ("reason", "detections"), rows, 1


def _campaigns(outcomes: Sequence[Outcome]) -> ReportTable:
    """In a comparison the rows of a campaign follow each other."""
    header = ("venue", "campaign", "catalog", "else mostly", "sent", "devices", "held back")
    compared = ("only here", "devices only here") if len(outcomes) > 1 else ()
    rows = []
    for outcome in outcomes:
        for row in outcome.campaigns:
            others = [it for it in row.reasons if it not in (Reason.GRANTED, Reason.THROTTLED)]
            mostly = others[0] if others else "" if row.reasons else "no detection"
            figures = [row.sent, row.devices, row.reasons.get(Reason.THROTTLED, 0)]
            figures += [row.only_here or 0, row.devices_only_here or 0] if compared else []
            named = (row.campaign.venue, row.campaign.campaign, outcome.name, mostly)
            rows.append((*named, *(f"{each:,}" for each in figures)))
    if compared:
        rows.sort(key=lambda row: row[:2])
    return "Campaigns", (*header, *compared), rows, 3 + len(compared)


def _visits(outcomes: Sequence[Outcome]) -> ReportTable:
    figures = ("visits", "back in 5 min", "mean", *LENGTH_NAMES)
    rows = []
    found = [(each.name, *tally) for each in outcomes for tally in each.visits.items()]
    for name, kind, tally in sorted(found, key=lambda each: each[1]):
        ended = tally.lengths.total()
        mean = f"{tally.seconds / ended / 60:.1f} min" if ended else "-"
        counts = (f"{tally.lengths[minutes]:,}" for minutes in LENGTHS)
        rows.append((kind, name, f"{tally.visits:,}", f"{tally.flaps:,}", mean, *counts))
    return "Visits", ("place", "settings", *figures), rows, len(figures)


def _times(outcomes: Sequence[Outcome]) -> ReportTable:
    """Notifications by hour of the venues' clocks, or by day if there are many hours."""
    by_day = len({hour[:13] for each in outcomes for _, hour, _ in each.hours}) > _MOST_HOURS
    counts = [Counter[str]() for _ in outcomes]
    for outcome, by_time in zip(outcomes, counts, strict=True):
        for _, hour, sent in outcome.hours:
            by_time[hour[:10] if by_day else f"{hour[:13].replace('T', ' ')}:00"] += sent
    rows = [(at, *(f"{each[at]:,}" for each in counts)) for at in sorted(set().union(*counts))]
    unit = "day" if by_day else "hour"
    title = f"Notifications by {unit}, by the venues' clocks"
    return title, (unit, *(each.name for each in outcomes)), rows, len(counts)


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
            figures = row.campaign._asdict() | dict(zip(row._fields[1:], row[1:], strict=True))
            yield {"kind": "campaign", "catalog": outcome.name, **figures}
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
        for campaign, hour, sent in outcome.hours:
            line = {**campaign._asdict(), "hour": hour, "sent": sent}
            yield {"kind": "hour", "catalog": outcome.name, **line}


class SentCsv:
    """Writes every notification as CSV during the replay. The file names devices: personal data."""

    def __init__(self, stream: TextIO) -> None:
        self._writer = csv.writer(stream, lineterminator="\n")
        self._writer.writerow(_SENT_COLUMNS)

    def add(self, catalog: str, grants: Sequence[Grant], only: Sequence[bool]) -> None:
        """Write the notifications of a catalog; `only`, in a comparison, says which the other
        catalog does not send."""
        for number, (detection, place, campaign, named) in enumerate(grants):
            (id_,) = notification_ids(detection, (campaign,))
            cells = (
                *(catalog, str(UUID(bytes=id_)), format_instant(detection.detected_at)),
                *(named.company, named.venue, named.campaign_id, named.campaign, named.format),
                *(place.reference.name, detection.message.device.udid),
                str(only[number]).lower() if only else "",
            )
            self._writer.writerow(for_csv(cells))
