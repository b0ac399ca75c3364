"""`proximity replay`: decides recorded detections against a catalog again, without side effects.

Records come from Kafka or from a file. The catalog comes from SQL, from a file loaded over a copy
of SQL, or from a file alone (catalogs.py). Decoding and deciding are the trigger's; claims are in
memory (decisions.py). The counts are written as text, JSON lines, CSV and one HTML page
(output.py).
"""

import asyncio
import math
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, nullcontext
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Annotated, Literal, TextIO

import typer
from aiokafka import TopicPartition

from catalog.chunks import chunked
from catalog.database import Database
from catalog.load import LoadError
from catalog.plain_text import for_terminal
from engine.cli.command import (
    CommandError,
    CommandInterruptedError,
    begin_quietly,
    examples,
    moment,
)
from engine.cli.detection_file import DetectionFile, FileRecord, Format, InputFaultError, form_of
from engine.cli.output import ShownProgress, count_of, echo_json, shown_progress
from engine.cli.publish import FormatOption, opened
from engine.cli.replay.catalogs import (
    ReplayedCatalog,
    copy_catalog,
    living_campaigns,
    loaded_over,
    make_empty,
    read_catalog,
)
from engine.cli.replay.decisions import (
    CatalogComparison,
    CatalogReplay,
    ReplayPeriod,
    outcome_of,
)
from engine.cli.replay.output import (
    ReplayFindings,
    SentCsv,
    json_lines,
    print_findings,
    write_csv,
    write_page,
)
from engine.cli.servers import first_contact, kafka_failures, open_migrated_database
from engine.formats.decoders import DetectionDecoder, OwnFormatDecoder, detection_decoders
from engine.kafka.dead_letters import DeadLetter
from engine.kafka.detections import DecodedDetection
from engine.kafka.topic_reader import OffsetRange, TopicReader, open_topic_reader, partitions_of
from engine.kafka.topics import detection_topics, ensure_topics
from engine.kafka.workers import Records
from engine.process.lifecycle import tune_garbage_collector
from engine.process.settings import Settings
from engine.trigger.grants import Grant
from engine.wiring.parts import catalog_limits
from rules.parsing import parse_delay

_AS_IT_IS = "as it is"
_LARGEST_LIST = 5000  # records a list from Kafka
_ALWAYS = ReplayPeriod()
_FILE_TOPIC = ""  # the topic of records from a file


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
    form: FormatOption = None,
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
    if without_sql and catalog is None:
        raise typer.BadParameter("needs --catalog", param_hint="--without-sql")
    if json and str(csv_file) == "-":
        raise typer.BadParameter("goes to standard output, as --json does", param_hint="--csv")
    for option, written in (("--html", html), ("--sends", sends)):
        if str(written) == "-":
            raise typer.BadParameter("accepted: a file, not standard output", param_hint=option)
    request = ReplayRequest(
        file=file,
        form=form or (form_of(file) if file is not None else Format.JSONL),
        period=_period(since, until, warm_up),
        shift=float(_duration(shift, "--shift")),
        catalogs=tuple(each for each in (catalog, compare) if each is not None),
        compares=compare is not None,
        without_sql=without_sql,
    )
    settings = begin_quietly(context)
    for written in (csv_file, html):
        if written is not None and str(written) != "-":
            _writable(written, "a").close()  # said before the work begins
    with nullcontext() if sends is None else _writable(sends) as sent:
        tune_garbage_collector()
        found: list[ReplayFindings] = []

        async def replaying() -> None:
            found.append(await perform(settings, request, sent))

        # The result is not returned to asyncio.run, because Python's signal module would format it
        # twice, which takes long for the findings of a year.
        asyncio.run(replaying())
    (findings,) = found
    if csv_file is not None and str(csv_file) != "-":
        with _writable(csv_file) as stream:
            write_csv(findings, stream)
    if html is not None:
        with _writable(html) as stream:
            stream.write(write_page(findings))
    _show(findings, json, str(csv_file) == "-")


def _show(findings: ReplayFindings, as_json: bool, as_csv: bool) -> None:
    if as_csv:
        write_csv(findings, sys.stdout)
    elif as_json:
        for line in json_lines(findings):
            echo_json(line)
    else:
        print_findings(findings)


def _period(since: str | None, until: str | None, warm_up: str) -> ReplayPeriod:
    seconds = _duration(warm_up, "--warm-up")
    if seconds and since is None:
        raise typer.BadParameter("goes with --from", param_hint="--warm-up")
    begin = -inf if since is None else moment("--from", since)
    end = inf if until is None else moment("--to", until)
    if begin >= end:
        raise typer.BadParameter("is not later than --from", param_hint="--to")
    return ReplayPeriod(begin, end, begin - seconds)


def _duration(text: str, option: str) -> int:
    try:
        return parse_delay(text)
    except ValueError as error:
        text = str(error).replace("a cache delay", "a duration")
        raise typer.BadParameter(text, param_hint=option) from None


def _writable(file: Path, mode: Literal["w", "a"] = "w") -> TextIO:
    try:
        return open(file, mode, encoding="utf-8", newline="")  # noqa: PTH123  # typed so
    except OSError as error:
        raise CommandError(f"cannot write {file}: {error.strerror}") from None


@dataclass(frozen=True, kw_only=True)
class ReplayRequest:
    """The options of a call.

    With `compares` the last of `catalogs` is the second catalog. Without a first one the catalog in
    SQL is used.
    """

    file: Path | None = None
    form: Format = Format.JSONL
    period: ReplayPeriod = _ALWAYS
    shift: float = 0.0
    catalogs: Sequence[Path] = ()
    compares: bool = False
    without_sql: bool = False


async def perform(
    settings: Settings, request: ReplayRequest, sends: TextIO | None = None
) -> ReplayFindings:
    """Run the whole replay; every notification is written to `sends`. Raises CommandError."""
    if request.file is not None and str(request.file) != "-":
        with opened(request.file, request.form):
            pass  # it can be read: said before the catalog is read
    try:
        replays = [
            CatalogReplay(each, max_age=settings.max_detection_age, shift=request.shift)
            for each in await _catalogs(settings, request)
        ]
        written = None if sends is None else SentCsv(sends, compared=len(replays) > 1)
        async with _source(settings, request) as source:
            decoders: Mapping[str, DetectionDecoder] = detection_decoders(settings)
            if request.file is not None:
                own = OwnFormatDecoder(path_loss_exponent=settings.path_loss_exponent)
                decoders = {_FILE_TOPIC: own}
            run = _Run(source, replays, request, None if written is None else written.add)
            with shown_progress("replayed", "detections") as progress:
                findings = await run.run(decoders, progress)
    except asyncio.CancelledError:
        raise CommandInterruptedError("interrupted; no result is shown") from None
    except InputFaultError as error:
        raise CommandError(str(error)) from None
    if findings.records and findings.records == findings.undecodable:
        raise CommandError(f"there is no detection in {findings.source}; {findings.first_fault}")
    return findings


@asynccontextmanager
async def _source(
    settings: Settings, request: ReplayRequest
) -> "AsyncIterator[FileSource | KafkaSource]":
    if request.file is not None:
        with opened(request.file, request.form) as file:
            yield FileSource(file)
        return
    with kafka_failures(settings, lambda: "the replay did not finish"):
        await first_contact(settings, ensure_topics(settings, ()))
        async with open_topic_reader(
            settings, missing="skip", largest_list=_LARGEST_LIST
        ) as reader:
            yield KafkaSource(settings, reader, request.period)


async def _catalogs(settings: Settings, request: ReplayRequest) -> list[ReplayedCatalog]:
    """The catalog and, in a comparison, the second one."""
    contents = [(_name(file, request.catalogs), _content(file)) for file in request.catalogs]
    async with AsyncExitStack() as stack:
        database = None
        if not request.without_sql:
            database = await stack.enter_async_context(open_migrated_database(settings))
        catalogs = []
        if database is not None and len(contents) == int(request.compares):
            catalogs.append(await read_catalog(database, _AS_IT_IS))
        if contents:
            catalogs += await _loaded(settings, database, contents)
        return catalogs


async def _loaded(
    settings: Settings, database: Database | None, contents: Sequence[tuple[str, bytes]]
) -> list[ReplayedCatalog]:
    """Load each file by itself into a copy of SQL's catalog, or into an empty one."""
    known: frozenset[int] = frozenset()
    with tempfile.TemporaryDirectory(prefix="proximity-") as directory:
        base = Path(directory) / "base.sqlite3"
        if database is None:
            await make_empty(base)
        else:
            await copy_catalog(database, base)
            known = await living_campaigns(database)
        catalogs = []
        for name, raw in contents:
            try:
                async with loaded_over(base, raw, catalog_limits(settings)) as copy:
                    catalogs.append(await read_catalog(copy, name, known))
            except LoadError as error:
                for fault in error.faults:
                    typer.echo(for_terminal(f"{name}: {fault}"), err=True)
                message = f"{name} has {count_of(len(error.faults), 'fault')}"
                raise CommandError(message) from None
        return catalogs


def _name(file: Path, files: Sequence[Path]) -> str:
    """The file's short name if it differs from the other file's, else the whole path."""
    alone = [each.name for each in files].count(file.name) == 1
    return file.name if alone and file.name != _AS_IT_IS else str(file)


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise CommandError(f"cannot read {file}: {error.strerror}") from None


class FileSource:
    """The records of a file. `total` and `read` count bytes; `total` is None for a pipe.

    A line of JSON Lines that is not a detection is counted, as it would be on Kafka. CSV and an
    array must be valid as a whole: then `is_strict` is true.
    """

    def __init__(self, file: DetectionFile) -> None:
        self.name = file.name
        self.total = file.size
        self.is_strict = False
        self._file = file

    @property
    def read(self) -> int:
        """The bytes that were read."""
        return self._file.read

    async def batches(self) -> AsyncGenerator[Records, None]:
        """Records, a block of the file at a time. Raises InputFaultError."""
        async for entries in self._file.blocks():
            self.is_strict = not self._file.is_lines
            for entry in entries:
                if entry.fault is not None:
                    raise InputFaultError(f"{self.name}:{entry.line}: {entry.fault}")
            yield [FileRecord(each.value, each.line) for each in entries]


class KafkaSource:
    """The records whose detections may be in a period. `total` and `read` count offsets.

    Kafka finds records by their timestamps. A detection may arrive late, or have the time of a
    phone whose clock is ahead, so the topic is read from `max_age` before the period to `max_age`
    after it. Later records are stale. A device's records are in one partition, in order.
    """

    is_strict = False

    def __init__(self, settings: Settings, reader: TopicReader, period: ReplayPeriod) -> None:
        self.total: int | None = None
        self.read = 0
        self._settings = settings
        self._reader = reader
        self._period = period
        self._topics = [topic.name for topic in detection_topics(settings)]
        self.name = ", ".join(self._topics)

    async def batches(self) -> AsyncGenerator[Records, None]:
        """Records, one partition at a time.

        Raises KafkaError or TimeoutError, and CommandError if there is no such topic.
        """
        partitions = await partitions_of(self._settings, self._topics)
        if not partitions:
            raise CommandError(f"there is no topic {self.name} yet: `proximity run` makes it")
        begins, ends = await self._offsets(partitions)
        self.total = sum(ends[tp] - begins[tp] for tp in ends)
        async for records in self._reader.records_until(begins, ends):
            if records:
                self.read += len(records)
                yield records

    async def _offsets(
        self, partitions: list[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        ranges = await self._reader.ranges(partitions)
        begins = {tp: each.begin for tp, each in ranges.items()}
        ends = {tp: each.end for tp, each in ranges.items()}
        margin, period = self._settings.max_detection_age, self._period
        if period.warm_up > -inf:
            begins |= await self._first_since(ranges, period.warm_up - margin)
        if period.until < inf:
            ends |= await self._first_since(ranges, period.until + margin)
        return begins, {tp: max(end, begins[tp]) for tp, end in ends.items()}

    async def _first_since(
        self, ranges: dict[TopicPartition, OffsetRange], instant: float
    ) -> dict[TopicPartition, int]:
        """The first offsets at `instant`. A partition without one is read from its beginning."""
        found = await self._reader.first_since(ranges, instant)
        return {tp: offset for tp, offset in found.items() if offset is not None}


# The grants of a catalog for some detections, and the positions of those that only it sends.
OnSent = Callable[[CatalogReplay, Sequence[Grant], set[int]], None]


class _Run:
    """Replays a source against one catalog, or against two side by side.

    The period is compared with the detections' own times; after that the times are moved by the
    shift. `on_sent` receives the grants of each batch. There is no await per detection.
    """

    def __init__(
        self,
        source: FileSource | KafkaSource,
        replays: Sequence[CatalogReplay],
        request: ReplayRequest,
        on_sent: OnSent | None,
    ) -> None:
        self._source = source
        self._replays = replays
        self._comparison = CatalogComparison(*replays) if len(replays) > 1 else None
        self._period = request.period
        self._shift = request.shift
        self._on_sent = on_sent
        self._records = self._undecodable = self._decided = 0
        self._first_fault = ""

    async def run(
        self, decoders: Mapping[str, DetectionDecoder], progress: ShownProgress
    ) -> ReplayFindings:
        """Read to the end. Raises the errors of the source."""
        begin: float | None = None
        async with aclosing(self._source.batches()) as batches:
            async for records in batches:
                begin = begin or time.monotonic()
                progress.expect(self._source.total)
                if records:
                    decoder = decoders[records[0].topic]
                    for part in chunked(records, decoder.records_at_once):
                        batch = await decoder.decode(part)
                        self._take(batch.messages, batch.dead_letters, len(part))
                progress.update(self._records, self._source.read)
        return ReplayFindings(
            self._source.name,
            self._records,
            self._undecodable,
            self._first_fault,
            self._decided,
            0.0 if begin is None else time.monotonic() - begin,
            self._period.begins_cold,
            [outcome_of(each, self._comparison, at) for at, each in enumerate(self._replays)],
        )

    def _take(
        self, detections: list[DecodedDetection], letters: Sequence[DeadLetter], records: int
    ) -> None:
        self._records += records
        self._undecodable += len(letters)
        if letters and not self._first_fault:
            self._first_fault = _place_and_fault(self._source.name, letters[0])
            if self._source.is_strict:
                raise InputFaultError(self._first_fault)
        for each in detections:
            if math.isnan(each.detected_at):  # a line of a file has no timestamp instead
                place = f"{self._source.name}:{each.record.offset}"
                raise InputFaultError(f"{place}: detected_at is missing, and needed here")
        for counted, part in self._period.parts(detections):
            self._decide(list(part), counted)

    def _decide(self, detections: list[DecodedDetection], counted: bool) -> None:
        if self._shift:
            for detection in detections:
                detection.detected_at += self._shift
        sent = [replay.decide(detections, counted=counted) for replay in self._replays]
        self._decided += len(detections) if counted else 0
        only: Sequence[set[int]] = [set() for _ in sent]
        if self._comparison is not None:
            only = self._comparison.note(*sent)
        if self._on_sent is not None:
            for replay, grants, positions in zip(self._replays, sent, only, strict=True):
                self._on_sent(replay, grants, positions)


def _place_and_fault(source: str, letter: DeadLetter) -> str:
    """The place names the one topic of the record, or the file."""
    record = letter.record
    place = f"{record.topic}/{record.partition}" if record.topic else source
    return f"{place}:{record.offset}: {letter.detail}"
