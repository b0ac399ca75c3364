"""`proximity replay`: decides recorded detections against a catalog again, without side effects.

Records come from Kafka or from a file. The catalog comes from SQL, from a file loaded over a copy
of SQL, or from a file alone (catalogs.py). Decoding and deciding are the trigger's; claims are in
memory (decisions.py). output.py shows the counts.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from catalog.database import chunked
from catalog.load import LoadError
from engine.cli.command import (
    CommandError,
    Json,
    begin_quietly,
    command,
    moment,
    parsed,
    telling,
)
from engine.cli.detection_file import DetectionFile, FormatOption, form_of
from engine.cli.output import echo_json, refused_file, shown_progress
from engine.cli.replay.catalogs import ReplayedCatalog, loaded_over, read_catalog
from engine.cli.replay.decisions import CatalogReplay, VisitReplay, VisitSettings
from engine.cli.replay.output import SentCsv, print_results
from engine.cli.servers import open_migrated_database
from engine.formats.decoders import detection_decoders
from engine.kafka.detections import DecodedDetection
from engine.kafka.topic_reader import OffsetRange, open_topic_reader, partitions_of
from engine.process.lifecycle import tune_garbage_collector
from engine.process.settings import Settings
from engine.wiring.parts import catalog_limits
from rules.parsing import parse_delay

_LARGEST_LIST = 5000  # records

Detections = AsyncGenerator[list[DecodedDetection], None]


@command(
    "replay",
    "replay --from 2026-11-20T00:00:00+0100",
    "replay detections.jsonl --catalog new.json --without-sql",
    "replay --compare new.json --sends sends.csv",
    "replay --visits exit=60,margin=8",
)
async def replay(
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
    begin, end = _period(since, until, before)
    later = float(parsed("--shift", parse_delay, shift))
    tried = None if visits is None else parsed("--visits", VisitSettings.parse, visits)
    opened = None if file is None else DetectionFile(file, form or form_of(file))
    settings = begin_quietly()
    read, decided = ReadRecords(), 0
    with (
        telling(lambda: "no result is shown"),
        shown_progress("replayed", "detections") as progress,
    ):
        tune_garbage_collector()
        files = [catalog] if compare is None else [catalog, compare]
        catalogs = await _catalogs(settings, files, without_sql)
        replays = _replays(settings, catalogs, begin + later, tried)
        if opened is None:
            detections = _of_kafka(settings, begin - before, end, read, progress)
        else:
            detections = _of_file(opened, settings.path_loss_exponent, read, progress)
        written = SentCsv(sends)
        started = time.monotonic()
        async with aclosing(detections):
            async for batch in detections:  # there is no await per detection
                part = [each for each in batch if begin - before <= each.detected_at < end]
                decided += sum(each.detected_at >= begin for each in part)
                _move(part, later)
                for one in replays:
                    written.add(one.catalog, one.decide(part))
        for one in replays:
            written.add(one.catalog, one.finish())
    if read.records and read.records == read.undecodable:
        raise CommandError(f"there is no detection in {read.source}; {read.first_fault}")
    summary = {
        "kind": "replay",
        "source": read.source,
        "records": read.records,
        "undecodable": read.undecodable,
        "first_fault": read.first_fault,
        "detections": decided,
        "seconds": round(time.monotonic() - started, 3),
        "begins_cold": begin > -inf and not before,
        "notifications": {each.catalog.name: each.sent for each in replays},
        "devices": {each.catalog.name: each.devices for each in replays},
    }
    rows = [summary, *_rows(replays)]
    if not as_json:
        print_results(*rows)
        return
    for row in rows:
        echo_json(row)


def _period(since: str | None, until: str | None, before: float) -> tuple[float, float]:
    if before and since is None:
        raise typer.BadParameter("goes with --from", param_hint="--warm-up")
    begin = -inf if since is None else parsed("--from", moment, since)
    end = inf if until is None else parsed("--to", moment, until)
    if begin >= end:
        raise typer.BadParameter("is not later than --from", param_hint="--to")
    return begin, end


def _rows(replays: list[CatalogReplay]) -> Iterator[dict[str, Any]]:
    others = [None] if len(replays) == 1 else replays[::-1]
    for one, other in zip(replays, others, strict=True):
        yield from one.rows(other)


@dataclass
class ReadRecords:
    """How many records were read of a source, of which `undecodable` are not detections."""

    source: str = ""
    records: int = 0
    undecodable: int = 0
    first_fault: str | None = None

    def note_fault(self, place: str, detail: str) -> None:
        """A record is no detection."""
        self.undecodable += 1
        self.first_fault = self.first_fault or f"{place}: {detail}"


def _move(detections: list[DecodedDetection], seconds: float) -> None:
    """As if the devices had been there later, and the records had come as much later."""
    for detection in detections if seconds else ():
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
                    faults = [f"{name}: {each}" for each in error.faults]
                    raise refused_file(name, faults, "nothing was changed") from None
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
    bounds = (since, settings.max_detection_age, settings.path_loss_exponent)
    return [CatalogReplay(catalog, VisitReplay(each, catalog, *bounds)) for catalog, each in tried]


async def _of_file(
    file: DetectionFile, exponent: float, read: ReadRecords, progress: Callable[..., None]
) -> Detections:
    """The detections of a file, a block at a time. What is none is noted."""
    read.source = file.name
    progress(total=file.size)
    with file:
        for block in chunked(file.entries(), _LARGEST_LIST):
            await asyncio.sleep(0)  # for a Ctrl-C
            found = []
            for entry in block:
                try:
                    found.append(entry.decode(exponent, timed=True))
                except ValueError as error:
                    read.note_fault(f"{file.name}:{entry.offset}", str(error))
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
    read.source = ", ".join(decoders)
    partitions = await partitions_of(settings, decoders)
    if not partitions:
        raise CommandError(f"there is no topic {read.source} yet: `proximity run` makes it")
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
