"""`proximity verify`: counts the topics again and compares the counts with SQL."""

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from catalog.plain_text import for_terminal
from engine.cli.errors import CommandError
from engine.cli.invocation import begin_quietly
from engine.cli.servers import kafka_failures, open_migrated_database
from engine.cli.tables import echo_json, print_wrapped_table
from engine.process.settings import Settings

if TYPE_CHECKING:
    from engine.cli.verify.difference import Difference
    from engine.cli.verify.run import VerifyFindings

# A statement that reads all devices takes longer than those of the engine's daily work.
_STATEMENT_SECONDS = 3600.0
_WIDTH_OF_A_FILE = 160


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("verify")(verify)


def verify(
    context: typer.Context,
    passes: Annotated[
        int,
        typer.Option(
            min=1,
            max=1000,
            help="Read the topics this many times, each time for a share of the devices.",
        ),
    ] = 1,
    limit: Annotated[
        int, typer.Option(min=1, help="Show at most this many differences; all are counted.")
    ] = 1000,
    strict: Annotated[
        bool, typer.Option("--strict", help="Also fail on differences that an edit may explain.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line, with every difference.")
    ] = False,
) -> None:
    """Count the topics again, up to the offsets that SQL has recorded, and compare with SQL.

    Compares nb_beacon and nb_campaign of every device, and the rows of receptions, of
    authentications and (if TRACE is all) of detections that TRACE_RETENTION certainly keeps. SQL is
    read in one read-only transaction, which stays open until the end; recorders may go on. The
    present catalog decides which beacons and keys count, so a difference that a later edit may
    explain is marked. Memory: about 300 bytes a device and 100 a notification of the topics;
    --passes 4 needs a quarter of it and four times as long. Exit status 0: everything agrees,
    except what later edits of the catalog may explain (unless --strict); 1: there are differences,
    or nothing was recorded.
    """
    settings = begin_quietly(context)
    report = _Report(json, limit)
    findings = asyncio.run(_verify(settings, passes, report))
    report.show()
    _conclude(findings, report, strict=strict)


class _Report:
    """Receives the differences as they are found."""

    def __init__(self, json: bool, limit: int) -> None:
        self.count = self.explained = 0
        self._json = json
        self._limit = limit
        self._first: list[Difference] = []

    def add(self, difference: "Difference") -> None:
        """Count a difference, and show or keep it."""
        self.count += 1
        self.explained += difference.may_be_edit
        if self._json:
            echo_json(difference.as_json())
        elif len(self._first) < self._limit:
            self._first.append(difference)

    def show(self) -> None:
        """Print the collected differences as a table."""
        if not self._first:
            return
        header = ("company", "device", "udid", "figure", "topics", "SQL", "")
        print_wrapped_table(header, map(_cells, self._first), width_of_file=_WIDTH_OF_A_FILE)
        if self.count > len(self._first):
            typer.echo(f"the first {len(self._first):,} are shown (--limit)")


def _cells(each: "Difference") -> tuple[str, ...]:
    device = "missing" if each.device_id is None else str(each.device_id)
    note = "an edit of the catalog may explain it" if each.may_be_edit else ""
    topics, sql = f"{each.topics:,}", f"{each.sql:,}"
    return str(each.company_id), device, each.udid, each.figure, topics, sql, note


async def _verify(settings: Settings, passes: int, report: _Report) -> "VerifyFindings":
    from engine.cli.progress import shown_progress
    from engine.cli.verify.run import verify as compare

    async with open_migrated_database(settings, command_timeout=_STATEMENT_SECONDS) as database:
        with (
            kafka_failures(settings, lambda: "nothing is compared to the end"),
            shown_progress(sys.stderr, "read", "records") as progress,
        ):
            return await compare(
                settings, database, passes=passes, progress=progress, on_difference=report.add
            )


def _conclude(findings: "VerifyFindings", report: _Report, *, strict: bool) -> None:
    """The summary on standard error, and the exit status."""
    typer.echo(
        f"compared {findings.devices:,} devices with {findings.records:,} records "
        f"({findings.malformed:,} of them malformed)",
        err=True,
    )
    for topic in sorted(findings.replaced):
        typer.echo(
            f"another topic {topic} was recorded before this one: what it added is in SQL too, so "
            "SQL can only be seen to have too little",
            err=True,
        )
    for place, begin in findings.incomplete.items():
        typer.echo(
            f"{place.topic}/{place.partition} begins at {begin:,}: what was before is gone, so "
            "SQL can only be seen to have too little",
            err=True,
        )
    for fault in findings.faults:
        typer.echo(for_terminal(fault), err=True)
    if findings.faults or report.count > report.explained or (strict and report.count):
        explained = f", {report.explained:,} of them perhaps edits" if report.explained else ""
        partly = ", and not all could be compared" if findings.faults else ""
        raise CommandError(f"{report.count:,} differences{explained}{partly}")
    if report.count:
        typer.echo(
            f"no differences but {report.count:,} that later edits of the catalog may explain "
            "(--strict makes them a failure)",
            err=True,
        )
    else:
        typer.echo("no differences", err=True)
