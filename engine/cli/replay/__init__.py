"""`proximity replay`: decides recorded detections against a catalog again, without side effects.

Records come from Kafka or from a file. The catalog comes from SQL, from a file loaded over a copy
of SQL, or from a file alone (catalogs.py). Decoding and deciding are the trigger's; claims are in
memory (decisions.py). output.py shows the counts.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, aclosing
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Annotated, TextIO

import typer
from typer import Argument, Option

from catalog.database import chunked
from catalog.load import LoadError
from engine.cli.catalog import refused_document
from engine.cli.command import (
    CommandError,
    Json,
    begin_quietly,
    command,
    moment,
    new_app,
    parsed,
    telling,
)
from engine.cli.detection_file import (
    DetectionFile,
    Format,
    FormatOption,
    InputFaultError,
    form_of,
)
from engine.cli.output import echo_json, shown_progress
from engine.cli.replay.catalogs import ReplayedCatalog, loaded_over, read_catalog
from engine.cli.replay.decisions import (
    CatalogReplay,
    Grant,
    ReplayPeriod,
    VisitReplay,
    VisitSettings,
)
from engine.cli.replay.output import ReplayFindings, SentCsv, json_lines, print_findings
from engine.cli.servers import open_migrated_database
from engine.formats.decoders import detection_decoders
from engine.kafka.detections import DecodedDetection
from engine.kafka.topic_reader import open_topic_reader, partitions_of
from engine.kafka.topics import detection_topics, ensure_topics
from engine.process.lifecycle import tune_garbage_collector
from engine.process.settings import Settings
from engine.wiring.parts import catalog_limits
from rules.parsing import parse_delay

_AS_IT_IS = "as it is"
_LARGEST_LIST = 5000  # records a list from Kafka

Detections = AsyncGenerator[list[DecodedDetection], None]

app = new_app()


@command(
    app,
    "replay",
    "replay --from 2026-11-20T00:00:00+0100",
    "replay detections.jsonl --catalog new.json --without-sql",
    "replay --compare new.json --sends sends.csv",
    "replay --visits exit=60,margin=8",
)
async def replay(
    context: typer.Context,
    file: Annotated[Path | None, Argument(help="As for publish; default: Kafka.")] = None,
    form: FormatOption = None,
    since: Annotated[str | None, Option("--from", help="From 2026-11-20T10:00:00+0100 on.")] = None,
    until: Annotated[str | None, Option("--to", help="Up to, not including, this time.")] = None,
    warm_up: Annotated[str, Option(help="Also replay this before, uncounted: 1 day.")] = "none",
    shift: Annotated[str, Option(help="Move detections later: 1 week, PT12H.")] = "none",
    catalog: Annotated[Path | None, Option(help="A catalog file, as if it were loaded.")] = None,
    compare: Annotated[Path | None, Option(help="Another catalog file, side by side.")] = None,
    visits: Annotated[
        str | None,
        Option(
            help="Show visits too, as set and with other settings: exit=60 (seconds of silence), "
            "margin=8 (dB beyond a beacon's reach), or both."
        ),
    ] = None,
    without_sql: Annotated[
        bool, Option("--without-sql", help="The files alone are the catalogs.")
    ] = False,
    as_json: Json = False,
    sends: Annotated[typer.FileTextWrite | None, Option(help="Write each as CSV.")] = None,
) -> None:
    """Decide recorded detections again, and show what would have been sent.

    The detections come from FILE, in any form that `publish` reads, or from the detection topics.
    Each is decided at its own time against the present catalog in SQL, or with --catalog as if
    that file had been loaded. Nothing is published, committed or written, and no customer's
    service is called. Memory: about 400 bytes a device that receives something, and 150 for each of
    its campaigns; with --visits, 1,000 a device and place.
    """
    if without_sql and catalog is None:
        raise typer.BadParameter("needs --catalog", param_hint="--without-sql")
    if visits is not None and compare is not None:
        raise typer.BadParameter("goes without --compare", param_hint="--visits")
    request = ReplayRequest(
        file=file,
        form=form or (form_of(file) if file is not None else Format.JSONL),
        period=_period(since, until, warm_up),
        shift=float(_duration(shift, "--shift")),
        catalog=catalog,
        compare=compare,
        without_sql=without_sql,
        visits=None if visits is None else parsed("--visits", VisitSettings.parse, visits),
    )
    settings = begin_quietly(context)
    tune_garbage_collector()
    findings = await perform(settings, request, sends)
    if as_json:
        for line in json_lines(findings):
            echo_json(line)
    else:
        print_findings(findings)


def _period(since: str | None, until: str | None, warm_up: str) -> ReplayPeriod:
    seconds = _duration(warm_up, "--warm-up")
    if seconds and since is None:
        raise typer.BadParameter("goes with --from", param_hint="--warm-up")
    begin = -inf if since is None else parsed("--from", moment, since)
    end = inf if until is None else parsed("--to", moment, until)
    if begin >= end:
        raise typer.BadParameter("is not later than --from", param_hint="--to")
    return ReplayPeriod(begin, end, begin - seconds)


def _duration(text: str, option: str) -> int:
    try:
        return parse_delay(text)
    except ValueError as error:
        text = str(error).replace("a cache delay", "a duration")
        raise typer.BadParameter(text, param_hint=option) from None


@dataclass(frozen=True, kw_only=True)
class ReplayRequest:
    """The options of a call.

    Without `catalog` that of SQL is used. With `visits` they are followed as set, and under these
    settings.
    """

    file: Path | None = None
    form: Format = Format.JSONL
    period: ReplayPeriod = ReplayPeriod()  # noqa: RUF009  # it cannot be changed
    shift: float = 0.0
    catalog: Path | None = None
    compare: Path | None = None
    without_sql: bool = False
    visits: VisitSettings | None = None


async def perform(
    settings: Settings, request: ReplayRequest, sends: TextIO | None = None
) -> ReplayFindings:
    """Run the whole replay; every notification is written to `sends`. Raises CommandError."""
    with ExitStack() as stack:
        file = None
        if request.file is not None:
            file = stack.enter_context(DetectionFile(request.file, request.form))
        stack.enter_context(telling(lambda: "no result is shown"))
        progress = stack.enter_context(shown_progress("replayed", "detections"))
        replays = _replays(settings, request, await _catalogs(settings, request))
        names = [topic.name for topic in detection_topics(settings)]
        source = file.name if file is not None else ", ".join(names)
        findings = ReplayFindings(source, request.period.begins_cold)
        if file is None:
            detections = _of_kafka(settings, request.period, findings, progress)
        else:
            detections = _of_file(file, settings.path_loss_exponent, findings, progress)
        written = None if sends is None else SentCsv(sends)
        begin = time.monotonic()
        async with aclosing(detections):
            async for batch in detections:
                _decide(batch, request, replays, findings, written)
        _compare([each.finish() for each in replays], request, replays, written)
        findings.seconds = time.monotonic() - begin
    if findings.records and findings.records == findings.undecodable:
        raise CommandError(f"there is no detection in {findings.source}; {findings.first_fault}")
    others = [None] if len(replays) == 1 else replays[::-1]
    findings.outcomes = [each.outcome(other) for each, other in zip(replays, others, strict=True)]
    return findings


def _decide(
    batch: list[DecodedDetection],
    request: ReplayRequest,
    replays: Sequence[CatalogReplay],
    findings: ReplayFindings,
    written: SentCsv | None,
) -> None:
    """Decide a batch against each catalog.

    The period is compared with the detections' own times; after that the times are moved by the
    shift. There is no await per detection.
    """
    for counted, part in request.period.parts(batch):
        detections = list(part)
        for each in detections if request.shift else ():
            each.detected_at += request.shift
        findings.decided += len(detections) if counted else 0
        sent = [replay.decide(detections, counted=counted) for replay in replays]
        _compare(sent, request, replays, written)


def _compare(
    sent: list[list[Grant]],
    request: ReplayRequest,
    replays: Sequence[CatalogReplay],
    written: SentCsv | None,
) -> None:
    """Note what only one catalog sends, and write all."""
    for replay, mine, theirs in zip(replays, sent, sent[::-1], strict=True):
        only = () if request.compare is None else replay.note_only(mine, theirs)
        if written is not None:
            written.add(replay.catalog.name, mine, only)


async def _catalogs(settings: Settings, request: ReplayRequest) -> list[ReplayedCatalog]:
    """The catalog and, in a comparison, the second one.

    Each file is loaded by itself into a copy of SQL's catalog, or into an empty one.
    """
    files = [each for each in (request.catalog, request.compare) if each is not None]
    contents = [(_name(file, files), file.read_bytes()) for file in files]
    catalogs, limits = list[ReplayedCatalog](), catalog_limits(settings)
    async with AsyncExitStack() as stack:
        database = None
        if not request.without_sql:
            database = await stack.enter_async_context(open_migrated_database(settings))
            if request.catalog is None:
                catalogs.append(await read_catalog(database, _AS_IT_IS))
        for name, raw in contents:
            try:
                async with loaded_over(database, raw, limits) as (copy, known):
                    catalogs.append(await read_catalog(copy, name, known))
            except LoadError as error:
                raise refused_document(name, error) from None
    return catalogs


def _name(file: Path, files: Sequence[Path]) -> str:
    """The file's short name if it differs from the other file's, else the whole path."""
    alone = [each.name for each in files].count(file.name) == 1
    return file.name if alone and file.name != _AS_IT_IS else str(file)


def _replays(
    settings: Settings, request: ReplayRequest, catalogs: Sequence[ReplayedCatalog]
) -> list[CatalogReplay]:
    """One for each catalog, or for each of two settings of visits."""
    tried: list[VisitSettings | None] = [None] * len(catalogs)
    if request.visits is not None:
        tried = [VisitSettings(), request.visits]
        catalogs = [*catalogs, catalogs[0]._replace(name=request.visits.name)]
    max_age, shift = settings.max_detection_age, request.shift
    return [
        CatalogReplay(
            catalog,
            max_age,
            VisitReplay(
                settings=visits,
                catalog=catalog,
                since=request.period.since + shift,
                shift=shift,
                max_age=max_age,
                path_loss_exponent=settings.path_loss_exponent,
            ),
            shift,
        )
        for catalog, visits in zip(catalogs, tried, strict=True)
    ]


async def _of_file(
    file: DetectionFile, exponent: float, findings: ReplayFindings, progress: Callable[..., None]
) -> Detections:
    """The detections of a file, a block at a time.

    A line that is none is noted; CSV and an array are valid as a whole, or InputFaultError is
    raised.
    """
    progress(total=file.size)
    for entries in file.blocks():
        await asyncio.sleep(0)  # for a Ctrl-C
        found = []
        for entry in entries:
            try:
                found.append(entry.decode(exponent, timed=True))
            except ValueError as error:
                place = f"{file.name}:{entry.line}"
                if not file.is_lines:
                    raise InputFaultError(f"{place}: {error}") from None
                findings.note_fault(place, str(error))
        findings.records += len(entries)
        yield found
        progress(count=findings.records, completed=file.read)


async def _of_kafka(
    settings: Settings,
    period: ReplayPeriod,
    findings: ReplayFindings,
    progress: Callable[..., None],
) -> Detections:
    """The detections that may be in a period, one partition at a time.

    Kafka finds records by their timestamps. A detection may arrive late, or have the time of a
    phone whose clock is ahead, so the topic is read from `max_age` before the period to `max_age`
    after it. A device's records are in one partition, in order. Raises KafkaError or TimeoutError,
    and CommandError if there is no such topic.
    """
    await ensure_topics(settings, ())
    decoders = detection_decoders(settings)
    partitions = await partitions_of(settings, decoders)
    if not partitions:
        raise CommandError(f"there is no topic {', '.join(decoders)} yet: `proximity run` makes it")
    async with open_topic_reader(settings, missing="skip", largest_list=_LARGEST_LIST) as reader:
        ranges = await reader.ranges(partitions)
        begins = {tp: each.begin for tp, each in ranges.items()}
        ends = {tp: each.end for tp, each in ranges.items()}
        margin = settings.max_detection_age
        for bound, instant in ((begins, period.warm_up - margin), (ends, period.until + margin)):
            if abs(instant) < inf:
                bound |= await reader.first_since(ranges, instant)
        ends = {tp: max(end, begins[tp]) for tp, end in ends.items()}
        progress(total=sum(ends[tp] - begins[tp] for tp in ends))
        async for records in reader.records_until(begins, ends):
            if not records:
                continue
            decoder = decoders[records[0].topic]
            for part in chunked(records, decoder.records_at_once):
                batch = await decoder.decode(part)
                for letter in batch.dead_letters:
                    of = letter.record
                    findings.note_fault(f"{of.topic}/{of.partition}:{of.offset}", letter.detail)
                yield batch.messages
            findings.records += len(records)
            progress(count=findings.records, completed=findings.records)
