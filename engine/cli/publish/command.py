"""`proximity publish`: publishes detections from a file, as an ingestion pipeline would."""

import asyncio
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.cli.errors import CommandError, CommandInterruptedError
from engine.cli.examples import examples
from engine.cli.invocation import begin_quietly
from engine.cli.publish.form import Format, form_of
from engine.cli.servers import first_contact, kafka_failures
from engine.process.settings import Settings

if TYPE_CHECKING:
    from engine.cli.publish.item import LineReader
    from engine.cli.publish.pace import Pace
    from engine.cli.publish.source import Source


def register(app: typer.Typer) -> None:
    """Add the command."""
    lines = (
        "publish docs/examples/detections.jsonl --now",
        "publish recorded.csv --speed 10",
        "publish - --rate 100 < detections.jsonl",
    )
    app.command("publish", epilog=examples(*lines))(publish)


def publish(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(help="JSON Lines, a JSON array, or CSV; - is standard input.")
    ],
    form: Annotated[
        Format | None,
        typer.Option(
            "--format", help="Default: by suffix, .jsonl, .ndjson, .json or .csv; - is jsonl."
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(min=0.001, help="Detections a second; default: as fast as possible."),
    ] = None,
    speed: Annotated[
        float | None,
        typer.Option(min=0.001, help="Keep the intervals of detected_at, this many times faster."),
    ] = None,
    now: Annotated[
        bool, typer.Option("--now", help="Set detected_at to the time of publishing.")
    ] = False,
    as_is: Annotated[
        bool,
        typer.Option("--as-is", help="JSON Lines: publish every line, even if it is not JSON."),
    ] = False,
) -> None:
    """Publish detections from FILE to <topic prefix>detections, keyed by the device's udid.

    Every detection is checked with the engine's own checks before it is sent. JSON is published
    byte for byte: one detection per line, or one array. CSV needs a header; its columns are uuid,
    major, minor, proximity, rssi, tx_power, udid, name, version, model, token_push, id_connector,
    detected_at and ip. uuid, major, minor, udid, and one of proximity and rssi are required; an
    empty cell is an absent field. The first line that is not valid ends the run: the lines before
    it are published (of an array none), the lines after it are not.
    """
    if rate is not None and speed is not None:
        raise typer.BadParameter(
            "goes without --rate: one of them sets the pace", param_hint="speed"
        )
    form = form or form_of(file)
    if as_is and (now or speed is not None or form is Format.CSV):
        raise typer.BadParameter(
            "publishes JSON Lines unread: not with --now, --speed or CSV", param_hint="as-is"
        )
    settings = begin_quietly(context)
    reader = _reader(form, recorded=speed is not None, as_is=as_is)
    with _opened(file) as source:
        asyncio.run(_publish(settings, source, reader, _pace(rate, speed), stamp=now))


def _reader(form: Format, *, recorded: bool, as_is: bool) -> "LineReader":
    from engine.cli.publish.csv_rows import CsvRows
    from engine.cli.publish.json_input import JsonInput, JsonLines

    if form is Format.CSV:
        return CsvRows(recorded=recorded)
    return JsonLines(as_is=True) if as_is else JsonInput(recorded=recorded)


def _pace(rate: float | None, speed: float | None) -> "Pace":
    from engine.cli.publish.pace import Pace, RecordedPace, SteadyPace

    if rate is not None:
        return SteadyPace(rate)
    return Pace() if speed is None else RecordedPace(speed)


def _opened(file: Path) -> "Source":
    from engine.cli.publish.source import opened

    try:
        return opened(file)
    except OSError as error:
        raise CommandError(f"cannot read {file}: {error.strerror}") from None


async def _publish(
    settings: Settings, source: "Source", reader: "LineReader", pace: "Pace", *, stamp: bool
) -> None:
    from engine.cli.progress import shown_progress
    from engine.cli.publish.sender import Sender
    from engine.cli.publish.source import Input, InputFaultError
    from engine.kafka.errors import MessageTooLargeError
    from engine.kafka.publisher import Publisher
    from engine.kafka.topics import detection_topics, ensure_topics
    from engine.process.detection_topics import DetectionTopic

    found = detection_topics(settings)[0]
    topic = found.name
    if found != DetectionTopic(topic):
        raise CommandError(f"DETECTION_TOPICS says {found}: publish writes the format own only")
    publisher = Publisher.from_settings(settings)
    deadline = 3 * settings.kafka_request_timeout
    sender = Sender(publisher=publisher, topic=topic, pace=pace, stamp=stamp, deadline=deadline)
    detections = Input(source, reader)
    begin = time.monotonic()

    def published() -> str:
        return f"{sender.sent:,} had been published"

    with kafka_failures(settings, published):
        try:
            await first_contact(settings, ensure_topics(settings, (topic,)))
            await publisher.start()
            with shown_progress(sys.stderr, "published", "detections") as progress:
                progress.expect(source.size)
                sender.on_sent = lambda: progress.update(sender.sent, detections.read_bytes)
                async for items in detections.blocks():
                    await sender.send(items)
        except asyncio.CancelledError:
            raise CommandInterruptedError(f"interrupted; {published()}") from None
        except InputFaultError as error:
            raise CommandError(f"{error}; {published()}") from None
        except MessageTooLargeError as error:
            raise CommandError(f"the broker refuses {error}; at least {published()}") from None
        finally:
            await publisher.close()
    seconds = time.monotonic() - begin
    rate = sender.sent / seconds
    typer.echo(
        f"published {sender.sent:,} detections to {topic} in {seconds:.1f} s ({rate:,.0f}/s)"
    )
