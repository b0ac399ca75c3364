"""Runs one call of the command, from its files and servers to its findings."""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import typer

from catalog.database import Database
from catalog.load import LoadError
from catalog.plain_text import for_terminal
from engine.cli.errors import CommandError, CommandInterruptedError
from engine.cli.progress import shown_progress
from engine.cli.publish.form import Format
from engine.cli.publish.source import InputFaultError, opened
from engine.cli.replay.catalog_copy import copy_catalog, loaded_over, make_empty
from engine.cli.replay.catalogs import ReplayedCatalog, living_campaigns, read_catalog
from engine.cli.replay.decisions import CatalogReplay
from engine.cli.replay.export import SentCsv
from engine.cli.replay.file_source import FILE_TOPIC, FileSource
from engine.cli.replay.kafka_source import KafkaSource
from engine.cli.replay.outcome import ReplayFindings
from engine.cli.replay.period import ReplayPeriod
from engine.cli.replay.run import ReplayRun, ReplaySource
from engine.cli.servers import first_contact, kafka_failures, open_migrated_database
from engine.kafka.detection_decoder import (
    DetectionDecoder,
    OwnFormatDecoder,
    detection_decoders,
)
from engine.kafka.topic_reader import open_topic_reader
from engine.kafka.topics import ensure_topics
from engine.process.settings import Settings
from engine.wiring.stores import catalog_limits

_AS_IT_IS = "as it is"
_LARGEST_LIST = 5000  # records a list from Kafka


@dataclass(frozen=True, kw_only=True)
class ReplayRequest:
    """The options of a call.

    With `compares` the last of `catalogs` is the second catalog. Without a first one the catalog in
    SQL is used. Every notification is written to `sends`.
    """

    file: Path | None
    form: Format
    period: ReplayPeriod
    shift: float
    catalogs: Sequence[Path]
    compares: bool
    without_sql: bool
    sends: TextIO | None


async def perform(settings: Settings, request: ReplayRequest) -> ReplayFindings:
    """Run the whole replay. Raises CommandError with the line to show."""
    _refuse_unreadable(request.file)
    try:
        replays = [
            CatalogReplay(each, max_age=settings.max_detection_age, shift=request.shift)
            for each in await _catalogs(settings, request)
        ]
        async with _source(settings, request) as source:
            return await _run(settings, request, source, replays)
    except asyncio.CancelledError:
        raise CommandInterruptedError("interrupted; no result is shown") from None
    except InputFaultError as error:
        raise CommandError(str(error)) from None


async def _run(
    settings: Settings,
    request: ReplayRequest,
    source: ReplaySource,
    replays: Sequence[CatalogReplay],
) -> ReplayFindings:
    compared = len(replays) > 1
    sends = None if request.sends is None else SentCsv(request.sends, compared=compared)
    run = ReplayRun(
        source=source,
        replays=replays,
        period=request.period,
        shift=request.shift,
        decoders=_decoders(settings, request),
        on_sent=None if sends is None else sends.add,
    )
    with shown_progress(sys.stderr, "replayed", "detections") as progress:
        findings = await run.run(progress)
    if findings.records and findings.records == findings.undecodable:
        raise CommandError(f"there is no detection in {source.name}; {findings.first_fault}")
    return findings


def _refuse_unreadable(file: Path | None) -> None:
    """Check that the file can be read, before the catalog is read."""
    if file is None or str(file) == "-":
        return
    try:
        opened(file).close()
    except OSError as error:
        raise CommandError(f"cannot read {file}: {error.strerror}") from None


def _decoders(settings: Settings, request: ReplayRequest) -> Mapping[str, DetectionDecoder]:
    """The decoder of each topic; a file has our own format."""
    if request.file is None:
        return detection_decoders(settings)
    return {FILE_TOPIC: OwnFormatDecoder(path_loss_exponent=settings.path_loss_exponent)}


@asynccontextmanager
async def _source(settings: Settings, request: ReplayRequest) -> AsyncIterator[ReplaySource]:
    if request.file is not None:
        try:
            source = opened(request.file)
        except OSError as error:
            raise CommandError(f"cannot read {request.file}: {error.strerror}") from None
        with source:
            yield FileSource(source, request.form)
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
                raise _refused(name, error) from None
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


def _refused(name: str, error: LoadError) -> CommandError:
    for fault in error.faults:
        typer.echo(for_terminal(f"{name}: {fault}"), err=True)
    count = len(error.faults)
    return CommandError(f"{name} has {'1 fault' if count == 1 else f'{count} faults'}")
