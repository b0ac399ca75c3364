"""`proximity replay`: shows what recorded detections would have sent, with one catalog or two."""

import asyncio
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from engine.cli.errors import CommandError
from engine.cli.examples import examples
from engine.cli.invocation import begin_quietly
from engine.cli.publish.form import Format, form_of
from engine.cli.tables import echo_json
from engine.cli.time_option import moment

if TYPE_CHECKING:
    from engine.cli.replay.outcome import ReplayFindings
    from engine.cli.replay.period import ReplayPeriod


def register(app: typer.Typer) -> None:
    """Add the command."""
    lines = (
        "replay --from 2026-11-20T00:00:00+0100 --html friday.html",
        "replay detections.jsonl --catalog new.json --without-sql",
        "replay --compare new.json --sends sends.csv",
    )
    app.command("replay", epilog=examples(*lines))(replay)


def replay(
    context: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(
            help="JSON Lines, a JSON array or CSV; - is standard input. Default: Kafka."
        ),
    ] = None,
    form: Annotated[
        Format | None,
        typer.Option(
            "--format", help="Default: by suffix, .jsonl, .ndjson, .json or .csv; - is jsonl."
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--from", help="From this time on, 2026-11-20T10:00:00+0100; default: all."),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--to", help="Up to, not including, this time; default: all.")
    ] = None,
    warm_up: Annotated[
        str, typer.Option(help="Time before --from to replay uncounted, for its claims: 1 day.")
    ] = "none",
    shift: Annotated[
        str, typer.Option(help="Move every detection later by this time: 1 week, PT12H.")
    ] = "none",
    catalog: Annotated[
        Path | None, typer.Option(help="A catalog file, as if it had been loaded into SQL.")
    ] = None,
    compare: Annotated[
        Path | None,
        typer.Option(help="Another catalog file: show both, and what only one of them sends."),
    ] = None,
    without_sql: Annotated[
        bool,
        typer.Option("--without-sql", help="Do not use SQL: the files alone are the catalogs."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    csv_file: Annotated[
        Path | None, typer.Option("--csv", help="Write the hours as CSV; - is standard output.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write one HTML page with plots, which needs no internet.")
    ] = None,
    sends: Annotated[
        Path | None,
        typer.Option(help="Write every notification as CSV; the file names devices."),
    ] = None,
) -> None:
    """Decide recorded detections again, and show what would have been sent.

    The detections come from FILE, in any form that `publish` reads, or from the detection topics.
    Each is decided at its own time against the present catalog in SQL, or with --catalog as if
    that file had been loaded. The rules are the trigger's; claims are in memory. Nothing is
    published, committed or written, in Kafka, Redis or SQL. The result is grouped by campaign,
    hour (in the venue's local time) and reason. Customers' services are not called; each is
    assumed to answer with content.

    Memory: about 400 bytes a device that receives something, and 150 for each of its campaigns.
    """
    from engine.cli.replay.session import ReplayRequest, perform
    from engine.process.lifecycle import tune_garbage_collector

    if without_sql and catalog is None:
        raise typer.BadParameter("needs --catalog", param_hint="--without-sql")
    if json and str(csv_file) == "-":
        raise typer.BadParameter("goes to standard output, as --json does", param_hint="--csv")
    for option, written in (("--html", html), ("--sends", sends)):
        if str(written) == "-":
            raise typer.BadParameter("accepted: a file, not standard output", param_hint=option)
    period = _period(since, until, warm_up)
    settings = begin_quietly(context)
    _refuse_unwritable(csv_file, html)
    with nullcontext() if sends is None else _opened(sends) as sent:
        request = ReplayRequest(
            file=file,
            form=form or (form_of(file) if file is not None else Format.JSONL),
            period=period,
            shift=float(_duration(shift, "--shift")),
            catalogs=tuple(each for each in (catalog, compare) if each is not None),
            compares=compare is not None,
            without_sql=without_sql,
            sends=sent,
        )
        tune_garbage_collector()
        found: list[ReplayFindings] = []

        async def replaying() -> None:
            found.append(await perform(settings, request))

        # The result is not returned to asyncio.run, because Python's signal module would format it
        # twice, which takes long for the findings of a year.
        asyncio.run(replaying())
    (findings,) = found
    _write_files(findings, csv_file, html)
    _show(findings, json, csv_file)


def _write_files(findings: "ReplayFindings", csv_file: Path | None, html: Path | None) -> None:
    from engine.cli.replay.export import write_csv
    from engine.cli.replay.report.page import write_page

    if csv_file is not None and str(csv_file) != "-":
        with _opened(csv_file) as stream:
            write_csv(findings, stream)
    if html is not None:
        with _opened(html) as stream:
            stream.write(write_page(findings))


def _show(findings: "ReplayFindings", json: bool, csv_file: Path | None) -> None:
    from engine.cli.replay.export import json_lines, write_csv
    from engine.cli.replay.text import print_findings

    if str(csv_file) == "-":
        write_csv(findings, sys.stdout)
    elif json:
        for line in json_lines(findings):
            echo_json(line)
    else:
        print_findings(findings)


def _period(since: str | None, until: str | None, warm_up: str) -> "ReplayPeriod":
    from math import inf

    from engine.cli.replay.period import ReplayPeriod

    seconds = _duration(warm_up, "--warm-up")
    if seconds and since is None:
        raise typer.BadParameter("goes with --from", param_hint="--warm-up")
    begin = -inf if since is None else moment("--from", since)
    end = inf if until is None else moment("--to", until)
    if begin >= end:
        raise typer.BadParameter("is not later than --from", param_hint="--to")
    return ReplayPeriod(begin, end, begin - seconds)


def _duration(text: str, option: str) -> int:
    from rules.cache_delay import parse_delay

    try:
        return parse_delay(text)
    except ValueError as error:
        text = str(error).replace("a cache delay", "a duration")
        raise typer.BadParameter(text, param_hint=option) from None


def _refuse_unwritable(*files: Path | None) -> None:
    """Check that output files can be written before the work begins."""
    for file in files:
        if file is None or str(file) == "-":
            continue
        try:
            file.open("a", encoding="utf-8").close()
        except OSError as error:
            raise CommandError(f"cannot write {file}: {error.strerror}") from None


def _opened(file: Path) -> TextIO:
    try:
        return file.open("w", encoding="utf-8", newline="")
    except OSError as error:
        raise CommandError(f"cannot write {file}: {error.strerror}") from None
