"""`proximity replay`: decides recorded detections against a catalog again, without side effects.

Records come from Kafka or from a file. The catalog comes from SQL, from a file loaded over a copy
of SQL, or from a file alone (catalogs.py). Decoding and deciding are the trigger's; claims are in
memory (decisions.py). output.py shows the counts.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, aclosing
from dataclasses import dataclass, replace
from itertools import islice
from math import inf
from pathlib import Path
from typing import Annotated, Any, TextIO

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
from engine.cli.detection_file import DetectionFile, Format, FormatOption, form_of
from engine.cli.output import echo_json, shown_progress
from engine.cli.replay.catalogs import ReplayedCatalog, loaded_over, read_catalog
from engine.cli.replay.decisions import CatalogReplay, VisitReplay, VisitSettings
from engine.cli.replay.output import SentCsv, print_results
from engine.cli.servers import open_migrated_database
from engine.formats.decoders import detection_decoders
from engine.kafka.detections import DecodedDetection
from engine.kafka.topic_reader import OffsetRange, open_topic_reader, partitions_of
from engine.kafka.topics import detection_topics
from engine.process.lifecycle import tune_garbage_collector
from engine.process.settings import Settings
from engine.wiring.parts import catalog_limits
from rules.parsing import parse_delay

_LARGEST_LIST = 5000  # records

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
    before = parsed("--warm-up", parse_delay, warm_up)
    if before and since is None:
        raise typer.BadParameter("goes with --from", param_hint="--warm-up")
    begin = -inf if since is None else parsed("--from", moment, since)
    end = inf if until is None else parsed("--to", moment, until)
    if begin >= end:
        raise typer.BadParameter("is not later than --from", param_hint="--to")
    rows = await replayed_rows(
        begin_quietly(context),
        file=file,
        form=form or ("jsonl" if file is None else form_of(file)),
        since=begin,
        until=end,
        warm_up=before,
        shift=float(parsed("--shift", parse_delay, shift)),
        catalogs=[catalog] if compare is None else [catalog, compare],
        without_sql=without_sql,
        visits=None if visits is None else parsed("--visits", VisitSettings.parse, visits),
        sends=sends,
    )
    if not as_json:
        print_results(*rows)
    for row in rows if as_json else ():
        echo_json(row)


@dataclass
class ReadRecords:
    """How many records were read, of which `undecodable` are not detections."""

    records: int = 0
    undecodable: int = 0
    first_fault: str | None = None

    def note_fault(self, place: str, detail: str) -> None:
        """A record is no detection."""
        self.undecodable += 1
        self.first_fault = self.first_fault or f"{place}: {detail}"


async def replayed_rows(
    settings: Settings,
    *,
    file: Path | None = None,
    form: Format = "jsonl",
    since: float = -inf,
    until: float = inf,
    warm_up: float = 0.0,
    shift: float = 0.0,
    catalogs: Sequence[Path | None] = (None,),
    without_sql: bool = False,
    visits: VisitSettings | None = None,
    sends: TextIO | None = None,
) -> list[dict[str, Any]]:
    """Run the whole replay; every notification is written to `sends`. Raises CommandError.

    The period is from `since` up to, not including, `until` (epoch s). Detections of `warm_up`
    seconds before are decided but not counted, so that their claims are known. Without a file a
    catalog is that of SQL. With `visits` they are followed as set, and under these
    settings. Returns the objects of --json, the summary first.
    """
    read, decided = ReadRecords(), 0
    with ExitStack() as stack:
        opened = None if file is None else stack.enter_context(DetectionFile(file, form))
        stack.enter_context(telling(lambda: "no result is shown"))
        progress = stack.enter_context(shown_progress("replayed", "detections"))
        tune_garbage_collector()
        found = await _catalogs(settings, catalogs, without_sql)
        replays = _replays(settings, found, since + shift, visits)
        if opened is None:
            source = ", ".join(topic.name for topic in detection_topics(settings))
            detections = _of_kafka(settings, since - warm_up, until, read, progress)
        else:
            source = opened.name
            detections = _of_file(opened, settings.path_loss_exponent, read, progress)
        written = SentCsv(sends)
        begin = time.monotonic()
        async with aclosing(detections):
            async for batch in detections:  # there is no await per detection
                part = [each for each in batch if since - warm_up <= each.detected_at < until]
                decided += sum(each.detected_at >= since for each in part)
                for each in part if shift else ():
                    _move(each, shift)
                for replay in replays:
                    written.add(replay.catalog.name, replay.decide(part))
        for replay in replays:
            written.add(replay.catalog.name, replay.finish())
    if read.records and read.records == read.undecodable:
        raise CommandError(f"there is no detection in {source}; {read.first_fault}")
    summary = {
        "kind": "replay",
        "source": source,
        "records": read.records,
        "undecodable": read.undecodable,
        "first_fault": read.first_fault,
        "detections": decided,
        "seconds": round(time.monotonic() - begin, 3),
        "begins_cold": since > -inf and not warm_up,
        "notifications": {each.catalog.name: each.sent for each in replays},
        "devices": {each.catalog.name: each.devices for each in replays},
    }
    others = [None] if len(replays) == 1 else replays[::-1]
    pairs = zip(replays, others, strict=True)
    return [summary, *(row for replay, other in pairs for row in replay.rows(other))]


def _move(detection: DecodedDetection, seconds: float) -> None:
    """As if the device had been there later, and the record had come as much later."""
    detection.detected_at += seconds
    record = detection.record
    if record.timestamp >= 0:  # not of a file
        later = record.timestamp + round(1000 * seconds)
        detection.record = replace(record, timestamp=later)


async def _catalogs(
    settings: Settings, files: Sequence[Path | None], without_sql: bool
) -> list[ReplayedCatalog]:
    """The catalog and, in a comparison, the second one.

    Each file is loaded by itself into a copy of SQL's catalog, or into an empty one.
    """
    catalogs, names = list[ReplayedCatalog](), [file.name for file in files if file is not None]
    async with AsyncExitStack() as stack:
        database = None
        if not without_sql:
            database = await stack.enter_async_context(open_migrated_database(settings))
        for file in files:
            if file is not None:
                name = file.name if names.count(file.name) == 1 else str(file)
                over = loaded_over(database, file.read_bytes(), catalog_limits(settings))
                try:
                    async with over as (copy, known):
                        catalogs.append(await read_catalog(copy, name, known))
                except LoadError as error:
                    raise refused_document(name, error) from None
            elif database is not None:
                catalogs.append(await read_catalog(database, "as it is"))
    return catalogs


def _replays(
    settings: Settings,
    catalogs: Sequence[ReplayedCatalog],
    since: float,
    visits: VisitSettings | None,
) -> list[CatalogReplay]:
    """One for each catalog, or for each of two settings of visits."""
    tried: list[tuple[ReplayedCatalog, VisitSettings | None]]
    tried = [(catalog, None) for catalog in catalogs]
    if visits is not None:
        (catalog,) = catalogs
        tried = [(catalog, VisitSettings()), (catalog._replace(name=visits.name), visits)]
    return [
        CatalogReplay(
            catalog,
            VisitReplay(
                settings=each,
                catalog=catalog,
                since=since,
                max_age=settings.max_detection_age,
                path_loss_exponent=settings.path_loss_exponent,
            ),
        )
        for catalog, each in tried
    ]


async def _of_file(
    file: DetectionFile, exponent: float, read: ReadRecords, progress: Callable[..., None]
) -> Detections:
    """The detections of a file, a block at a time. What is none is noted."""
    progress(total=file.size)
    entries = file.entries()
    while block := list(islice(entries, _LARGEST_LIST)):
        await asyncio.sleep(0)  # for a Ctrl-C
        found = []
        for entry in block:
            try:
                found.append(entry.decode(exponent, timed=True))
            except ValueError as error:
                read.note_fault(f"{file.name}:{entry.line}", str(error))
        read.records += len(block)
        yield found
        progress(count=read.records, completed=file.read)


async def _of_kafka(
    settings: Settings,
    begin: float,
    end: float,
    read: ReadRecords,
    progress: Callable[..., None],
) -> Detections:
    """The detections that may be in a period, one partition at a time.

    Kafka finds records by their timestamps. A detection may arrive late, or have the time of a
    phone whose clock is ahead, so the topic is read from `max_age` before the period to `max_age`
    after it. A device's records are in one partition, in order. Raises KafkaError or TimeoutError,
    and CommandError if there is no such topic.
    """
    decoders = detection_decoders(settings)
    partitions = await partitions_of(settings, decoders)
    if not partitions:
        raise CommandError(f"there is no topic {', '.join(decoders)} yet: `proximity run` makes it")
    async with open_topic_reader(settings, missing="skip", largest_list=_LARGEST_LIST) as reader:
        ranges = await reader.ranges(partitions)
        margin = settings.max_detection_age
        begins = await reader.first_since(ranges, begin - margin)
        ends = await reader.first_since(ranges, end + margin)
        for tp, whole in ranges.items():
            first = begins.get(tp, whole.begin)
            ranges[tp] = OffsetRange(first, max(first, ends.get(tp, whole.end)))
        progress(total=sum(end - begin for begin, end in ranges.values()))
        async for records in reader.records_until(ranges):
            decoder = decoders[records[0].topic]
            for part in chunked(records, decoder.records_at_once):
                batch = await decoder.decode(part)
                for letter in batch.dead_letters:
                    of = letter.record
                    read.note_fault(f"{of.topic}/{of.partition}:{of.offset}", letter.detail)
                yield batch.messages
            read.records += len(records)
            progress(count=read.records, completed=read.records)
