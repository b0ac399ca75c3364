"""The results of a replay for a person at a terminal."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import typer

from catalog.plain_text import for_terminal
from engine.cli.demo.reasons import WORDS
from engine.cli.replay.outcome import CampaignRow, HourRow, Outcome, ReplayFindings
from engine.cli.tables import print_rows
from rules.model import Reason

_MOST_HOURS = 48
_DAY = 86_400


def print_findings(findings: ReplayFindings) -> None:
    """Print all results; if there are many hours, by day."""
    for line in summary_lines(findings):
        typer.echo(for_terminal(line))
    first = findings.outcomes[0]
    for outcome in findings.outcomes:
        title = "" if len(findings.outcomes) == 1 else f", {outcome.name}"
        _print_reasons(f"What was detected{title}", outcome)
    if len(findings.outcomes) == 1:
        _print_campaigns(first)
    else:
        _print_side_by_side(first, findings.outcomes[1])
    _print_hours(findings.outcomes)


def summary_lines(findings: ReplayFindings) -> Iterator[str]:
    """Print the results in sentences."""
    rate = findings.decided / max(findings.seconds, 0.001)
    yield (
        f"replayed {findings.decided:,} detections of {findings.source} in "
        f"{findings.seconds:.1f} s ({rate:,.0f}/s)"
    )
    for each in findings.outcomes:
        devices = "1 device" if each.devices == 1 else f"{each.devices:,} devices"
        yield f"{each.name}: {each.sent:,} notifications to {devices}"
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


def _print_reasons(title: str, outcome: Outcome) -> None:
    typer.echo(f"\n{title}")
    rows = [
        (reason.value, WORDS[reason], f"{count:,}") for reason, count in outcome.detections.items()
    ]
    _table(("reason", "", "detections"), rows, numbers=1)


def _print_campaigns(outcome: Outcome) -> None:
    typer.echo("\nCampaigns")
    rows = [
        (*_names(row), mostly(row), f"{row.sent:,}", f"{row.devices:,}", _throttled(row))
        for row in outcome.campaigns
    ]
    header = ("venue", "campaign", "else mostly", "sent", "devices", "held back")
    _table(header, rows, numbers=3)


def _print_side_by_side(first: Outcome, second: Outcome) -> None:
    typer.echo("\nCampaigns side by side")
    header = ("venue", "campaign", *_for_two("sent", first, second), *_only(first, second))
    rows = []
    for mine, other in paired(first, second):
        rows.append((*_names(mine or other), *_figures(mine, other)))
    _table(header, rows, numbers=4)


def paired(
    first: Outcome, second: Outcome
) -> Iterator[tuple[CampaignRow | None, CampaignRow | None]]:
    """The campaigns of both catalogs side by side; those that differ most come first."""
    others = {row.campaign.key: row for row in second.campaigns}
    pairs: list[tuple[CampaignRow | None, CampaignRow | None]] = [
        (row, others.pop(row.campaign.key, None)) for row in first.campaigns
    ]
    pairs += [(None, row) for row in others.values()]
    return iter(sorted(pairs, key=lambda pair: -sum(row.only_here or 0 for row in pair if row)))


def _names(row: CampaignRow | None) -> tuple[str, str]:
    return ("", "") if row is None else (row.campaign.place.venue, row.campaign.name)


def _for_two(word: str, first: Outcome, second: Outcome) -> tuple[str, str]:
    return f"{word}: {first.name}", f"{word}: {second.name}"


def _only(first: Outcome, second: Outcome) -> tuple[str, str]:
    return f"only {first.name}", f"only {second.name}"


def _figures(mine: CampaignRow | None, other: CampaignRow | None) -> tuple[str, str, str, str]:
    both = (mine, other)
    sent = ["-" if row is None else f"{row.sent:,}" for row in both]
    only = ["-" if row is None else f"{row.only_here:,}" for row in both]
    return sent[0], sent[1], only[0], only[1]


def mostly(row: CampaignRow) -> str:
    """The reason of most of the campaign's refused detections, except `throttled`."""
    for reason in row.reasons:
        if reason not in (Reason.GRANTED, Reason.THROTTLED):
            return reason.value
    return "" if row.reasons else "no detection"


def _throttled(row: CampaignRow) -> str:
    return f"{row.reasons.get(Reason.THROTTLED, 0):,}"


def _print_hours(outcomes: Sequence[Outcome]) -> None:
    """Notifications by hour of the venues' clocks, or by day."""
    by_hour = [_sent_by(outcome.rows, 1) for outcome in outcomes]
    hours = set().union(*by_hour)
    if not hours:
        return
    whole_days = len(hours) > _MOST_HOURS
    counts = [_sent_by(outcome.rows, _DAY) for outcome in outcomes] if whole_days else by_hour
    form = "%Y-%m-%d" if whole_days else "%Y-%m-%d %H:00"
    typer.echo(f"\nNotifications by {'day' if whole_days else 'hour'}, by the venues' clocks")
    rows = [
        (f"{datetime.fromtimestamp(at, UTC):{form}}", *(f"{each[at]:,}" for each in counts))
        for at in sorted(set().union(*counts))
    ]
    names = [each.name for each in outcomes] if len(outcomes) > 1 else ["sent"]
    _table(("day" if whole_days else "hour", *names), rows, numbers=len(counts))


def _sent_by(rows: Sequence[HourRow], seconds: int) -> Counter[int]:
    counts: Counter[int] = Counter()
    for row in rows:
        if row.reason is Reason.GRANTED:
            counts[row.hour.wall - row.hour.wall % seconds] += row.detections
    return counts


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: int) -> None:
    print_rows(header, rows, narrow=_blocks(header, rows), numbers=numbers)


def _blocks(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """For a narrow screen: the names on one line, then the numbers with their names."""
    for row in rows:
        named = list(zip(header, row, strict=True))
        yield ", ".join(cell for name, cell in named[:2] if cell)
        summary_lines = (f"{name} {cell}" if name else cell for name, cell in named[2:] if cell)
        yield "    " + ", ".join(summary_lines)
