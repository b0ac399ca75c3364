"""`proximity replay`: decides recorded detections against a catalog again, without side effects.

Records come from Kafka or from a file. The catalog comes from SQL, from a file loaded over a copy
of SQL, or from a file alone (catalogs.py). Decoding and deciding are the trigger's; claims are in
memory (decisions.py). The counts are written as text, JSON lines, CSV and one HTML page
(output.py).
"""

import math
import tempfile
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, nullcontext
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Annotated, TextIO

import typer
from typer import Argument, Option

from catalog.database import chunked
from catalog.load import LoadError
from catalog.migrate import migrate
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
from engine.cli.detection_file import DetectionFile, FileRecord, Format, InputFaultError, form_of
from engine.cli.output import ShownProgress, echo_json, shown_progress
from engine.cli.publish import FormatOption
from engine.cli.replay.catalogs import (
    ReplayedCatalog,
    copy_catalog,
    loaded_over,
    read_catalog,
)
from engine.cli.replay.decisions import CatalogReplay, ReplayPeriod, VisitReplay, VisitSettings
from engine.cli.replay.output import (
    ReplayFindings,
    SentCsv,
    json_lines,
    print_findings,
    write_csv,
    write_page,
)
from engine.cli.servers import open_migrated_database
from engine.formats.decoders import DetectionDecoder, OwnFormatDecoder, detection_decoders
from engine.kafka.detections import DecodedBatch, DecodedDetection
from engine.kafka.topic_reader import open_topic_reader, partitions_of
from engine.kafka.topics import detection_topics, ensure_topics
from engine.kafka.workers import Records
from engine.process.lifecycle import tune_garbage_collector
from engine.process.settings import Settings
from engine.wiring.parts import catalog_limits
from rules.parsing import parse_delay

_AS_IT_IS = "as it is"
_LARGEST_LIST = 5000  # records a list from Kafka
_FILE_TOPIC = ""  # the topic of records from a file

app = new_app()


@command(
    app,
    "replay",
    "replay --from 2026-11-20T00:00:00+0100 --html friday.html",
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
    csv_file: Annotated[
        typer.FileTextWrite | None,
        Option("--csv", help="Write the hours as CSV; - is standard output."),
    ] = None,
    html: Annotated[typer.FileTextWrite | None, Option(help="Write one HTML page.")] = None,
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
        catalogs=tuple(each for each in (catalog, compare) if each is not None),
        compares=compare is not None,
        without_sql=without_sql,
        visits=None if visits is None else parsed("--visits", VisitSettings.parse, visits),
    )
    settings = begin_quietly(context)
    for written in (csv_file, html):
        if written is not None:
            written.write("")  # a file that cannot be written is known before the work begins
    tune_garbage_collector()
    findings = await perform(settings, request, sends)
    if html is not None:
        html.write(write_page(findings))
    if csv_file is not None:
        write_csv(findings, csv_file)
    if as_json:
        for line in json_lines(findings):
            echo_json(line)
    elif csv_file is None or csv_file.name != "<stdout>":
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

    With `compares` the last of `catalogs` is the second catalog. Without a first one the catalog in
    SQL is used. With `visits` the catalog is compared with itself under these settings.
    """

    file: Path | None = None
    form: Format = Format.JSONL
    period: ReplayPeriod = ReplayPeriod()  # noqa: RUF009  # it cannot be changed
    shift: float = 0.0
    catalogs: Sequence[Path] = ()
    compares: bool = False
    without_sql: bool = False
    visits: VisitSettings | None = None


async def perform(
    settings: Settings, request: ReplayRequest, sends: TextIO | None = None
) -> ReplayFindings:
    """Run the whole replay; every notification is written to `sends`. Raises CommandError."""
    with (
        nullcontext()
        if request.file is None
        else DetectionFile(request.file, request.form) as file,
        telling(lambda: "no result is shown"),
        shown_progress("replayed", "detections") as progress,
    ):
        replays = list(_replays(settings, request, await _catalogs(settings, request)))
        decoders: Mapping[str, DetectionDecoder]
        if file is not None:
            name, batches = file.name, _file_records(file)
            progress.expect(file.size)
            own = OwnFormatDecoder(path_loss_exponent=settings.path_loss_exponent)
            decoders = {_FILE_TOPIC: own}
        else:
            name = ", ".join(topic.name for topic in detection_topics(settings))
            batches = _kafka_records(settings, request.period, progress)
            decoders = detection_decoders(settings)
        findings = ReplayFindings(name, request.period.begins_cold)
        written = None if sends is None else SentCsv(sends, compared=len(replays) > 1)
        try:
            run = _Run(request, file, replays, written, findings)
            await run.run(batches, decoders, progress)
        except InputFaultError as error:
            raise CommandError(str(error)) from None
    if findings.records and findings.records == findings.undecodable:
        raise CommandError(f"there is no detection in {findings.source}; {findings.first_fault}")
    return findings


async def _catalogs(settings: Settings, request: ReplayRequest) -> list[ReplayedCatalog]:
    """The catalog and, in a comparison, the second one.

    Each file is loaded by itself into a copy of SQL's catalog, or into an empty one.
    """
    contents = [(_name(file, request.catalogs), file.read_bytes()) for file in request.catalogs]
    catalogs, known = list[ReplayedCatalog](), frozenset[int]()
    with tempfile.TemporaryDirectory(prefix="proximity-") as directory:
        base = Path(directory) / "base.sqlite3"
        if request.without_sql:
            await migrate(f"sqlite:///{base}")
        else:
            async with open_migrated_database(settings) as database:
                if len(contents) == int(request.compares):
                    catalogs.append(await read_catalog(database, _AS_IT_IS))
                if contents:
                    known = await copy_catalog(database, base)
        for name, raw in contents:
            try:
                async with loaded_over(base, raw, catalog_limits(settings)) as copy:
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
) -> Iterator[CatalogReplay]:
    """One for each catalog, or for each of the settings of visits."""
    max_age, shift = settings.max_detection_age, request.shift
    if request.visits is None:
        for each in catalogs:
            yield CatalogReplay(each, max_age=max_age, shift=shift)
        return
    (catalog,) = catalogs
    for tried in (VisitSettings(), request.visits):
        visits = VisitReplay(
            tried,
            catalog.places,
            since=request.period.since + shift,
            shift=shift,
            max_age=max_age,
            path_loss_exponent=settings.path_loss_exponent,
        )
        named = catalog if tried is not request.visits else catalog._replace(name=tried.name)
        yield CatalogReplay(named, max_age=max_age, shift=shift, visits=visits)


async def _file_records(file: DetectionFile) -> AsyncGenerator[Records, None]:
    """The records of a file, a block at a time. Raises InputFaultError."""
    async for entries in file.blocks():
        for entry in entries:
            if entry.fault is not None:
                raise InputFaultError(f"{file.name}:{entry.line}: {entry.fault}")
        yield [FileRecord(each.value, each.line) for each in entries]


async def _kafka_records(
    settings: Settings, period: ReplayPeriod, progress: ShownProgress
) -> AsyncGenerator[Records, None]:
    """The records whose detections may be in a period, one partition at a time.

    Kafka finds records by their timestamps. A detection may arrive late, or have the time of a
    phone whose clock is ahead, so the topic is read from `max_age` before the period to `max_age`
    after it. A device's records are in one partition, in order. Raises KafkaError or TimeoutError,
    and CommandError if there is no such topic.
    """
    await ensure_topics(settings, ())
    topics = [topic.name for topic in detection_topics(settings)]
    partitions = await partitions_of(settings, topics)
    if not partitions:
        raise CommandError(f"there is no topic {', '.join(topics)} yet: `proximity run` makes it")
    async with open_topic_reader(settings, missing="skip", largest_list=_LARGEST_LIST) as reader:
        ranges = await reader.ranges(partitions)
        begins = {tp: each.begin for tp, each in ranges.items()}
        ends = {tp: each.end for tp, each in ranges.items()}
        margin = settings.max_detection_age
        for bound, instant in ((begins, period.warm_up - margin), (ends, period.until + margin)):
            if abs(instant) < inf:
                found = await reader.first_since(ranges, instant)
                bound |= {tp: offset for tp, offset in found.items() if offset is not None}
        ends = {tp: max(end, begins[tp]) for tp, end in ends.items()}
        progress.expect(sum(ends[tp] - begins[tp] for tp in ends))
        async for records in reader.records_until(begins, ends):
            yield records


@dataclass
class _Run:
    """Replays records against one catalog, or against two side by side.

    The period is compared with the detections' own times; after that the times are moved by the
    shift. There is no await per detection.
    """

    request: ReplayRequest
    file: DetectionFile | None
    replays: Sequence[CatalogReplay]
    written: SentCsv | None
    findings: ReplayFindings

    async def run(
        self,
        batches: AsyncGenerator[Records, None],
        decoders: Mapping[str, DetectionDecoder],
        progress: ShownProgress,
    ) -> None:
        """Read to the end. Raises the errors of `batches`."""
        begin: float | None = None
        async with aclosing(batches):
            async for records in batches:
                begin = begin or time.monotonic()
                if records:
                    decoder = decoders[records[0].topic]
                    for part in chunked(records, decoder.records_at_once):
                        self._take(part, await decoder.decode(part))
                progress.update(
                    self.findings.records, None if self.file is None else self.file.read
                )
        self.findings.seconds = 0.0 if begin is None else time.monotonic() - begin
        others = [None] if len(self.replays) == 1 else self.replays[::-1]
        self.findings.outcomes = [
            each.outcome(other) for each, other in zip(self.replays, others, strict=True)
        ]

    def _take(self, records: Records, batch: DecodedBatch[DecodedDetection]) -> None:
        findings = self.findings
        findings.records += len(records)
        findings.undecodable += len(batch.dead_letters)
        if batch.dead_letters and not findings.first_fault:
            letter = batch.dead_letters[0]
            record = letter.record
            place = f"{record.topic}/{record.partition}" if record.topic else findings.source
            findings.first_fault = f"{place}:{record.offset}: {letter.detail}"
            if self.file is not None and not self.file.is_lines:  # valid as a whole, or refused
                raise InputFaultError(findings.first_fault)
        for each in batch.messages:
            if math.isnan(each.detected_at):  # a line of a file has no timestamp instead
                place = f"{findings.source}:{each.record.offset}"
                raise InputFaultError(f"{place}: detected_at is missing, and needed here")
        for counted, part in self.request.period.parts(batch.messages):
            detections = list(part)
            for each in detections if self.request.shift else ():
                each.detected_at += self.request.shift
            findings.decided += len(detections) if counted else 0
            sent = [replay.decide(detections, counted=counted) for replay in self.replays]
            for number, (replay, mine) in enumerate(zip(self.replays, sent, strict=True)):
                only = set[int]()
                if len(sent) > 1:
                    only = replay.note_only(mine, sent[1 - number], self.replays[1 - number])
                if self.written is not None:
                    self.written.add(replay, mine, only)
