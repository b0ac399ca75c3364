"""`proximity statistics`: shows detections and notifications by day."""

from datetime import UTC, date, datetime
from typing import Annotated

import typer
from typer import Option

from catalog.plain_text import csv_text
from catalog.statistics import (
    StatisticFilter,
    StatisticKind,
    StatisticLine,
    VisitTotals,
    days_of,
    statistic_lines,
    visit_totals,
)
from engine.cli.command import Json, begin_quietly, command, parsed
from engine.cli.output import LENGTH_NAMES, echo_json, print_table, say
from engine.cli.servers import company_id, open_migrated_database


@command(
    "statistics",
    "statistics --from 2026-11-01 --to 2026-11-30 --csv november.csv",
    'statistics --company "Harbour Mall" --kind campaign',
)
async def statistics(
    first: Annotated[
        str | None, Option("--from", help="First day; default: a week before.")
    ] = None,
    last: Annotated[str | None, Option("--to", help="Last day; default: today.")] = None,
    company: Annotated[str | None, Option(help="Only this company: name or id.")] = None,
    venue: Annotated[str | None, Option(help="Only this venue: name or id.")] = None,
    kind: Annotated[StatisticKind | None, Option(help="Only this kind of line.")] = None,
    csv_file: Annotated[
        typer.FileTextWrite | None,
        Option("--csv", encoding="utf-8", help="Write CSV; - is standard output."),
    ] = None,
    visits: Annotated[bool, Option("--visits", help="Show visits instead.")] = False,
    as_json: Json = False,
) -> None:
    """Show detections and notifications by day, venue, place and campaign.

    A day is one of the venue's time zone. Detections are those of beacons, `place_detections` those
    of geofences and tags. The devices of a line are distinct, so lines cannot be added. Test
    devices are left out. A visit counts for the day of its entry; `now` are those that go on.
    """
    if csv_file is not None and (visits or as_json):
        raise typer.BadParameter("goes without --visits and --json", param_hint="csv")
    given = (("--from", first), ("--to", last))
    days = (parsed(name, date.fromisoformat, day) if day else None for name, day in given)
    begin, end = days_of(datetime.now(UTC), *days)
    if begin > end:
        raise typer.BadParameter(f"{begin} comes after {end}", param_hint="from")
    settings = begin_quietly()
    owner = None if company is None else await company_id(settings, company)
    choice = StatisticFilter(begin, end, owner, venue, kind)
    async with open_migrated_database(settings) as database, database.read() as session:
        if visits:
            found = await visit_totals(session, choice, now=datetime.now(UTC))
            _show_visits(found, choice, as_json)
            return
        if as_json:
            async for line in statistic_lines(session, choice):
                echo_json(line._asdict())
            return
        if csv_file is None:
            lines = [line async for line in statistic_lines(session, choice)]
            if lines:
                print_table(StatisticLine._fields, lines)
            else:
                say(f"nothing from {choice.first} to {choice.last}")
            return
        csv_file.write(csv_text([StatisticLine._fields]))
        count = 0
        async for line in statistic_lines(session, choice):
            csv_file.write(csv_text([line]))
            count += 1
    say(f"{count:,} lines written to {csv_file.name}", err=csv_file.name == "<stdout>")


def _show_visits(found: list[VisitTotals], choice: StatisticFilter, as_json: bool) -> None:
    if as_json:
        for each in found:
            echo_json(each._asdict())
        return
    if not found:
        say(f"no visits from {choice.first} to {choice.last}")
        return
    header = ("company", "venue", "kind", "id", "name", "visits", "now", "mean min")
    rows = [
        (
            *(each.company, each.venue, each.kind, each.id, each.name, each.visits, each.open),
            round(each.seconds / each.ended / 60, 1) if each.ended else None,
            *each.lengths.values(),
        )
        for each in found
    ]
    print_table((*header, *LENGTH_NAMES), rows)
