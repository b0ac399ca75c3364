"""`proximity statistics`: shows detections and notifications by day."""

import asyncio
import csv
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TextIO

import typer

from catalog.plain_text import for_csv
from catalog.statistics import (
    WEEK,
    StatisticFilter,
    StatisticLine,
    VisitTotals,
    latest_week,
    statistic_lines,
    visit_totals,
)
from engine.cli.command import CommandError, begin_quietly, examples, new_app
from engine.cli.output import LENGTH_NAMES, echo_json, print_table
from engine.cli.servers import open_migrated_database
from engine.process.settings import Settings

Keep = Callable[[StatisticLine], None]


class Kind(StrEnum):
    """The values of `--kind`."""

    VENUE = "venue"
    BEACON = "beacon"
    GEOFENCE = "geofence"
    NFC = "nfc"
    QRCODE = "qrcode"
    CAMPAIGN = "campaign"


app = new_app()


@app.command(
    "statistics",
    epilog=examples(
        "statistics --from 2026-11-01 --to 2026-11-30 --csv november.csv",
        'statistics --company "Harbour Mall" --kind campaign',
    ),
)
def statistics(
    context: typer.Context,
    first: Annotated[
        str | None,
        typer.Option("--from", help="First day, 2026-11-20; default: a week before --to."),
    ] = None,
    last: Annotated[str | None, typer.Option("--to", help="Last day; default: today.")] = None,
    company: Annotated[str | None, typer.Option(help="Only this company: name or id.")] = None,
    venue: Annotated[str | None, typer.Option(help="Only this venue: name or id.")] = None,
    kind: Annotated[Kind | None, typer.Option(help="Only this kind of line.")] = None,
    file: Annotated[
        Path | None, typer.Option("--csv", help="Write CSV to this file; - is standard output.")
    ] = None,
    visits: Annotated[
        bool, typer.Option("--visits", help="Show visits instead: how many, how long, and now.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Show detections, devices and notifications by day, venue, place and campaign.

    Detections are those of beacons, those of geofences, NFC tags and QR codes are beside them. A
    day is the day of the detection in the venue's time zone (UTC if it has none). The devices of a
    line are distinct, so the numbers of several lines cannot be added. Test devices are left out.
    The role recorder updates these statistics. Visits are those of companies that ask for presence
    events; a visit counts for the day of its entry, and `now` are those that began today or
    yesterday and go on.
    """
    if visits and file is not None:
        raise typer.BadParameter("goes without --csv", param_hint="visits")
    if json and file is not None:
        raise typer.BadParameter("goes without --csv", param_hint="json")
    settings = begin_quietly(context)
    choice = _choice(first, last, company, venue, kind)
    if visits:
        found = asyncio.run(_read_visits(settings, choice))
        if json:
            for each in found:
                lengths = {str(minutes): count for minutes, count in each.lengths.items()}
                echo_json(each._asdict() | {"lengths": lengths})
        else:
            _show_visits(found, choice)
    elif json:
        asyncio.run(_read(settings, choice, lambda line: echo_json(line._asdict())))
    elif file is None:
        lines: list[StatisticLine] = []
        asyncio.run(_read(settings, choice, lines.append))
        _show(lines, choice)
    elif str(file) == "-":
        _export(settings, choice, sys.stdout)
    else:
        with _opened(file) as stream:
            count = _export(settings, choice, stream)
        typer.echo(f"{count:,} lines written to {file}")


def _choice(
    first: str | None, last: str | None, company: str | None, venue: str | None, kind: Kind | None
) -> StatisticFilter:
    begin, end = latest_week(datetime.now(UTC))
    if last:
        end = _day(last, "to")
        begin = end - WEEK
    if first:
        begin = _day(first, "from")
    if begin > end:
        raise typer.BadParameter(f"{begin} comes after {end}", param_hint="from")
    return StatisticFilter(begin, end, company, venue, kind.value if kind else None)


def _day(text: str, option: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter("a day is written 2026-11-20", param_hint=option) from None


def _opened(file: Path) -> TextIO:
    try:
        return file.open("w", encoding="utf-8", newline="")
    except OSError as error:
        raise CommandError(f"cannot write {file}: {error.strerror}") from None


def _export(settings: Settings, choice: StatisticFilter, stream: TextIO) -> int:
    """Write CSV with a header. Returns the number of lines after it."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(StatisticLine._fields)

    def keep(line: StatisticLine) -> None:
        writer.writerow(for_csv(line))

    return asyncio.run(_read(settings, choice, keep))


async def _read(settings: Settings, choice: StatisticFilter, keep: Keep) -> int:
    """Pass every line to `keep`. Returns the number of lines."""
    count = 0
    async with open_migrated_database(settings) as database, database.read() as session:
        async for line in statistic_lines(session, choice):
            keep(line)
            count += 1
    return count


def _show(lines: list[StatisticLine], choice: StatisticFilter) -> None:
    if not lines:
        typer.echo(f"nothing from {choice.first} to {choice.last}")
        return
    header = ("day", "company", "venue", "kind", "id", "name")
    figures = ("detections", "devices", "notifications", "of places")
    print_table((*header, *figures), [_cells(line) for line in lines], numbers=len(figures))


def _cells(line: StatisticLine) -> tuple[str, ...]:
    # Detections count for beacons and venues, notifications for campaigns.
    irrelevant = line.kind == "campaign" and not line.detections
    return (
        str(line.day),
        line.company or "-",
        line.venue or f"deleted ({line.venue_id})",
        line.kind,
        str(line.id),
        line.name or "deleted",
        "-" if irrelevant else f"{line.detections:,}",
        f"{line.devices:,}",
        f"{line.notifications:,}",
        f"{line.place_detections:,}",
    )


async def _read_visits(settings: Settings, choice: StatisticFilter) -> list[VisitTotals]:
    async with open_migrated_database(settings) as database, database.read() as session:
        return await visit_totals(session, choice, now=datetime.now(UTC))


def _show_visits(found: list[VisitTotals], choice: StatisticFilter) -> None:
    if not found:
        typer.echo(f"no visits from {choice.first} to {choice.last}")
        return
    header = ("company", "venue", "kind", "id", "name")
    figures = ("visits", "now", "mean", *LENGTH_NAMES)
    rows = [
        (
            *(each.company or "-", each.venue or "-", each.kind, str(each.id), each.name or "-"),
            *(f"{each.visits:,}", f"{each.open:,}"),
            f"{each.seconds / each.ended / 60:.1f} min" if each.ended else "-",
            *(f"{count:,}" for count in each.lengths.values()),
        )
        for each in found
    ]
    print_table((*header, *figures), rows, numbers=len(figures))
