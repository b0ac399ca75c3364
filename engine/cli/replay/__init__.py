"""`proximity replay`: decides recorded detections against a catalog again, without side effects.

Records come from Kafka or from a file. The catalog comes from SQL, from a file loaded over a copy
of SQL, or from a file alone (catalogs.py). Decoding and deciding are the trigger's; claims are in
memory (decisions.py). The text is made of the objects of --json.
"""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, nullcontext
from dataclasses import replace
from functools import partial
from math import inf
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TextIO
from uuid import UUID

import typer
from typer import Argument, Option

from catalog.bounds import chunked
from catalog.load import LoadError
from catalog.plain_text import csv_text
from engine.cli.command import CommandError, Json, begin_quietly, command, moment, parsed
from engine.cli.detection_file import DetectionFile, Entry, FormatOption
from engine.cli.output import (
    LENGTH_NAMES,
    count_of,
    echo_json,
    print_table,
    refused_file,
    say,
    shown_progress,
)
from engine.cli.replay.catalogs import ReplayedCatalog, loaded_over, read_catalog
from engine.cli.replay.decisions import CatalogReplay, Grant, VisitReplay, VisitSettings
from engine.cli.servers import open_migrated_database
from engine.formats.decoders import detection_decoders
from engine.kafka.detections import DecodedDetection, decode_records
from engine.kafka.messages import format_instant
from engine.kafka.topic_reader import OffsetRange, open_topic_reader, partitions_of
from engine.kafka.topics import detection_topics
from engine.process.lifecycle import tune_garbage_collector
from engine.process.settings import Settings
from engine.trigger.grants import notification_ids
from engine.wiring.parts import catalog_limits
from rules.parsing import parse_delay

_LARGEST_LIST = 5000  # records
_MOST_HOURS = 48
_SENT_COLUMNS = (
    *("catalog", "id", "detected_at", "company", "venue", "campaign_id", "campaign"),
    *("format", "beacon", "udid"),
)
# The fields of --json that the tables of the text have.
_TABLES = {
    "reason": ("Detections by the furthest check", ("catalog", "reason", "detections")),
    "campaign": (
        "Campaigns",
        (
            *("venue", "campaign", "catalog", "else_mostly", "sent", "devices", "throttled"),
            *("only_here", "devices_only_here"),
        ),
    ),
    "visits": ("Visits", ("place", "catalog", "visits", "flaps", "mean_minutes", *LENGTH_NAMES)),
}


class Part(NamedTuple):
    """Records that were read together: their detections, and why the others are none.

    `read` of `total` (bytes or records) of the source have been read.
    """

    detections: list[DecodedDetection]
    faults: list[str]
    records: int
    read: int
    total: int


Parts = AsyncGenerator[Part, None]


@command(
    "replay",
    "replay --from 2026-11-20T00:00:00+0100",
    "replay detections.jsonl --catalog new.json --without-sql",
    "replay --compare new.json --sends sends.csv",
    "replay --visits exit=60,margin=8",
)
def replay(
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
) -> Coroutine[Any, Any, None]:
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
    tried = {} if visits is None else {visits: parsed("--visits", VisitSettings.parse, visits)}
    opened = None if file is None else DetectionFile(file, form)
    settings, files = begin_quietly(), [catalog] if compare is None else [catalog, compare]

    async def work() -> None:
        topics = ", ".join(topic.name for topic in detection_topics(settings))
        source = topics if opened is None else opened.name
        records = undecodable = decided = 0
        first_fault = None
        with shown_progress("replayed", "detections") as progress:
            tune_garbage_collector()
            catalogs = await _catalogs(settings, files, without_sql)
            trials = {catalogs[0].name: VisitSettings(), **tried} if tried else {}
            replays = _replays(settings, catalogs, begin + later, trials)
            parts = (
                _of_kafka(settings, begin - before, end)
                if opened is None
                else _of_file(opened, settings.path_loss_exponent)
            )
            _write(sends, [_SENT_COLUMNS])
            started = time.monotonic()
            async with aclosing(parts):
                async for part in parts:  # there is no await per detection
                    records += part.records
                    undecodable += len(part.faults)
                    first_fault = first_fault or next(iter(part.faults), None)
                    chosen = [
                        each for each in part.detections if begin - before <= each.detected_at < end
                    ]
                    decided += sum(each.detected_at >= begin for each in chosen)
                    _move(chosen, later)
                    for one in replays:
                        _write(sends, _sent(one.catalog, one.decide(chosen)))
                    progress(count=records, completed=part.read, total=part.total)
            for one in replays:
                _write(sends, _sent(one.catalog, one.finish()))
        if records and records == undecodable:
            raise CommandError(f"there is no detection in {source}; {first_fault}")
        summary = {
            "kind": "replay",
            "source": source,
            "records": records,
            "undecodable": undecodable,
            "first_fault": first_fault,
            "detections": decided,
            "seconds": round(time.monotonic() - started, 3),
            "begins_cold": begin > -inf and not before,
            "notifications": {each.catalog.name: each.sent for each in replays},
            "devices": {each.catalog.name: each.devices for each in replays},
        }
        rows = [summary, *(row for each in replays for row in each.rows(replays))]
        if not as_json:
            _show(*rows)
            return
        for row in rows:
            echo_json(row)

    return work()


def _period(since: str | None, until: str | None, before: float) -> tuple[float, float]:
    if before and since is None:
        raise typer.BadParameter("goes with --from", param_hint="--warm-up")
    begin = -inf if since is None else parsed("--from", moment, since)
    end = inf if until is None else parsed("--to", moment, until)
    if begin >= end:
        raise typer.BadParameter("is not later than --from", param_hint="--to")
    return begin, end


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
    catalogs = list[ReplayedCatalog]()
    sql = nullcontext() if without_sql else open_migrated_database(settings)
    async with sql as database:
        for file in files:
            if file is not None:
                over = loaded_over(database, file.read_bytes(), catalog_limits(settings))
                try:
                    async with over as (copy, known):
                        catalogs.append(await read_catalog(copy, str(file), known))
                except LoadError as error:
                    faults = [f"{file}: {each}" for each in error.faults]
                    raise refused_file(str(file), faults, "nothing was changed") from None
            elif database is not None:
                catalogs.append(await read_catalog(database, "as it is"))
    return catalogs


def _replays(
    settings: Settings,
    catalogs: Sequence[ReplayedCatalog],
    since: float,
    visits: Mapping[str, VisitSettings],
) -> list[CatalogReplay]:
    """One for each catalog, or for each of some settings of visits by name."""
    tried: list[tuple[ReplayedCatalog, VisitSettings | None]]
    tried = [(catalogs[0]._replace(name=name), each) for name, each in visits.items()]
    tried = tried or [(catalog, None) for catalog in catalogs]
    bounds = (since, settings.max_detection_age, settings.path_loss_exponent)
    return [CatalogReplay(catalog, VisitReplay(each, catalog, *bounds)) for catalog, each in tried]


async def _of_file(file: DetectionFile, exponent: float) -> Parts:
    """The detections of a file, a block at a time."""
    decode: Any = partial(Entry.decode, path_loss_exponent=exponent, timed=True)
    with file:
        block: Any
        for block in chunked(file.entries(), _LARGEST_LIST):
            await asyncio.sleep(0)  # for a Ctrl-C
            found, dead = decode_records(block, decode)
            faults = [f"{file.name}:{each.record.offset}: {each.detail}" for each in dead]
            yield Part(found, faults, len(block), file.read, file.size)


async def _of_kafka(settings: Settings, begin: float, end: float) -> Parts:
    """The detections that may be in a period, one partition at a time.

    Kafka finds records by their timestamps. A detection may arrive late, or have the time of a
    phone whose clock is ahead, so the topic is read from `max_age` before the period to `max_age`
    after it. A device's records are in one partition, in order. Raises KafkaError or TimeoutError,
    and CommandError if there is no such topic.
    """
    decoders, read = detection_decoders(settings), 0
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
        total = sum(end - begin for begin, end in ranges.values())
        async for records in reader.records_until(ranges):
            decoder = decoders[records[0].topic]
            for part in chunked(records, decoder.records_at_once):
                found, dead = await decoder.decode(part)
                read += len(part)
                place = "{0.topic}/{0.partition}:{0.offset}".format
                faults = [f"{place(each.record)}: {each.detail}" for each in dead]
                yield Part(found, faults, len(part), read, total)


def _show(summary: dict[str, Any], *rows: dict[str, Any]) -> None:
    """Print the objects of --json as sentences and tables."""
    of_kind = defaultdict[str, list[dict[str, Any]]](list)
    for row in rows:
        of_kind[row["kind"]].append(row)
    for line in _summary(summary, of_kind["campaign"]):
        say(line)
    names = list(summary["notifications"])
    # In a comparison the rows of a campaign, and of a kind of place, follow each other.
    if len(names) > 1:
        of_kind["campaign"].sort(key=itemgetter("venue", "campaign"))
        of_kind["visits"].sort(key=itemgetter("place"))
    for row in of_kind["visits"]:
        row |= zip(LENGTH_NAMES, row["lengths"].values(), strict=True)
    of_kind["time"] = list(_times(of_kind["hour"], names))
    times = ("Notifications, by the venues' clocks", ("from", *names))
    for kind, (title, header) in (_TABLES | {"time": times}).items():
        if of_kind[kind]:
            typer.echo(f"\n{title}")
            print_table(header, [[row[name] for name in header] for row in of_kind[kind]])


def _summary(summary: dict[str, Any], campaigns: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The results in sentences: how much was replayed, a line for each catalog, and notes."""
    decided, seconds = summary["detections"], summary["seconds"]
    rate = f"{seconds:.1f} s ({decided / max(seconds, 0.001):,.0f}/s)"
    yield f"replayed {decided:,} detections of {summary['source']} in {rate}"
    for name, sent in summary["notifications"].items():
        yield f"{name}: {sent:,} notifications to {count_of(summary['devices'][name], 'device')}"
    if summary["undecodable"]:
        yield (
            f"{summary['undecodable']:,} of {summary['records']:,} records are not detections, the "
            f"first: {summary['first_fault']}"
        )
    if summary["begins_cold"]:
        yield (
            "the claims from before are unknown: a campaign may show a notification that its "
            "cache delay forbade (--warm-up replays the time before)"
        )
    if any(row["sent"] and row["format"] == "connector" for row in campaigns):
        yield "customers' services are assumed to answer every call with content"


def _times(hours: Sequence[dict[str, Any]], names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The notifications of each catalog by hour, or by day if there are many hours."""
    by_day = len({row["hour"][:13] for row in hours}) > _MOST_HOURS
    sent = defaultdict[str, Counter[str]](Counter)
    for row in hours:
        hour = row["hour"][:10] if by_day else f"{row['hour'][:13].replace('T', ' ')}:00"
        sent[hour][row["catalog"]] += row["sent"]
    for at in sorted(sent):
        yield {"from": at} | {name: sent[at][name] for name in names}


def _write(stream: TextIO | None, rows: Iterable[Iterable[Any]]) -> None:
    """Write rows of --sends, if it was given."""
    if stream is not None:
        stream.write(csv_text(rows))


def _sent(catalog: ReplayedCatalog, grants: Sequence[Grant]) -> Iterator[tuple[Any, ...]]:
    """The rows of --sends."""
    for detection, place, campaign in grants:
        named = catalog.campaigns[campaign.id]
        (id_,) = notification_ids(detection, (campaign,))
        yield (
            *(catalog.name, str(UUID(bytes=id_)), format_instant(detection.detected_at)),
            *(named.company, named.venue, named.campaign_id, named.campaign, named.format),
            *(place.reference.name, detection.device.udid),
        )
