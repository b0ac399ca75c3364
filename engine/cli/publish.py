"""`proximity publish`: publishes detections from a file, as an ingestion pipeline would."""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import typer
from typer import Argument, Option

from engine.cli.command import CommandError, begin_quietly, command, telling
from engine.cli.detection_file import DetectionFile, FormatOption
from engine.cli.output import refused_file, say, shown_progress
from engine.cli.servers import open_publisher
from engine.kafka.client import REQUEST_SECONDS
from engine.kafka.detections import UNDECODABLE
from engine.kafka.producer import Outgoing, Publisher
from engine.kafka.topics import detection_topics, ensure_topics
from engine.process.settings import DetectionTopic, Settings

_BATCH_RECORDS = 1000
_TICK = 0.02  # seconds: items that become due within it form a batch


class Item(NamedTuple):
    """A message to publish. `key` is the device's udid, `recorded` its time (s) in the file."""

    key: bytes
    value: bytes
    recorded: float


@command(
    "publish",
    "publish docs/examples/detections.jsonl --now",
    "publish recorded.csv --speed 10",
    "publish - --rate 100 < detections.jsonl",
)
def publish(
    file: Annotated[Path, Argument(help="JSON Lines, a JSON array, or CSV; - is standard input.")],
    form: FormatOption = None,
    rate: Annotated[float | None, Option(min=0.001, help="Detections a second.")] = None,
    speed: Annotated[
        float | None, Option(min=0.001, help="Keep the recorded pace, times this.")
    ] = None,
    now: Annotated[bool, Option("--now", help="Set detected_at to the present.")] = False,
    skip_invalid: Annotated[
        bool, Option("--skip-invalid", help="Publish all but the invalid.")
    ] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Only check; needs no server.")] = False,
) -> Coroutine[Any, Any, None]:
    """Publish detections from FILE, keyed by the device's udid.

    Every detection is checked with the engine's own checks. JSON is published byte for byte: one
    detection per line, or one array. CSV needs a header; its columns are uuid,
    major, minor, proximity, rssi, tx_power, geofence (its id), transition, latitude, longitude,
    accuracy, tag_kind, tag_value, api_key, udid, name, version, model, token_push, id_connector,
    time_zone, detected_at and ip; an empty cell is an absent field. A file is checked whole before
    anything is published, and its faults are named; with --skip-invalid they stop nothing. Standard
    input is first read to its end.
    """
    if rate is not None and speed is not None:
        raise typer.BadParameter(
            "goes without --rate: one of them sets the pace", param_hint="speed"
        )
    settings = begin_quietly()
    source, faults = DetectionFile(file, form), list[str]()
    paces = {"timed": speed is not None, "numbered": rate is not None}
    items = partial(checked_items, source, faults, **paces)
    if dry_run or not skip_invalid:
        count, done = sum(1 for _ in items()), "nothing was published"
        done = f"{count:,} detections are valid; {done}" if dry_run else done
        if faults:
            raise refused_file(source.name, faults, done)
    if dry_run:
        say(done)
        raise typer.Exit
    return _publish(settings, source, items(), faults, speed=rate or speed or inf, stamp=now)


async def _publish(
    settings: Settings,
    source: DetectionFile,
    items: Iterable[Item],
    faults: list[str],
    **options: Any,
) -> None:
    topic, begin, sent = detection_topics(settings)[0], time.monotonic(), 0
    if topic != DetectionTopic(topic.name):
        raise CommandError(f"DETECTION_TOPICS says {topic}: publish writes the format own only")
    with (
        source,
        shown_progress("published", "detections") as progress,
        telling(lambda: f"{sent:,} had been published"),
    ):
        progress(total=source.size)
        await ensure_topics(settings, (topic.name,))
        async with open_publisher(settings) as publisher:
            async for sent in send(publisher, topic.name, items, **options):
                progress(count=sent, completed=source.read)
    for fault in faults:
        say(fault, err=True)
    seconds = time.monotonic() - begin
    skipped = f", skipped {len(faults):,}" if faults else ""
    done = f"published {sent:,} detections to {topic.name} in {seconds:.1f} s"
    say(f"{done} ({sent / seconds:,.0f}/s){skipped}")


def checked_items(
    source: DetectionFile, faults: list[str], *, timed: bool = False, numbered: bool = False
) -> Iterator[Item]:
    """The valid detections of a file; its `faults` are noted, each with its place.

    `timed` needs the time of every detection; if they are `numbered` they have a second each.
    Raises CommandError.
    """
    for number, entry in enumerate(source.entries()):
        try:
            found = entry.decode(path_loss_exponent=2.0, timed=timed)
        except UNDECODABLE as error:
            faults.append(f"{source.name}:{entry.offset}: {error}")
        else:
            at = number if numbered else found.detected_at
            yield Item(found.message.device.udid.encode(), entry.value, at)


def stamped(value: bytes, epoch: float) -> bytes:
    """The JSON object with `detected_at` set to `epoch`, in milliseconds.

    Every other field stays as it is, byte for byte.
    """
    fields = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
    fields["detected_at"] = msgspec.Raw(b"%d" % round(epoch * 1000))
    return msgspec.json.encode(fields)


async def send(
    publisher: Publisher,
    topic: str,
    items: Iterable[Item],
    *,
    speed: float = inf,
    stamp: bool = False,
) -> AsyncIterator[int]:
    """Publish the items in order and in batches, at the recorded pace times `speed`.

    With `stamp` detected_at is the present. Gives how many items the brokers have acknowledged.
    Raises KafkaError, MessageTooLargeError, and TimeoutError if a batch takes too long.
    """
    batch, sent = list[Outgoing](), 0
    begin, first = time.monotonic(), None
    for item in items:
        first = item.recorded if first is None else first
        # (Without a speed the times may be missing: no comparison with NaN is true.)
        wait = begin + (item.recorded - first) / speed - time.monotonic()
        if wait > 0 or len(batch) >= _BATCH_RECORDS:
            sent += await _flush(publisher, batch)
            yield sent
            batch = []
        if wait > 0:
            await asyncio.sleep(max(wait, _TICK))
        value = stamped(item.value, time.time()) if stamp else item.value
        batch.append(Outgoing(topic, item.key, value, []))
    yield sent + await _flush(publisher, batch)


async def _flush(publisher: Publisher, batch: Sequence[Outgoing]) -> int:
    async with asyncio.timeout(3 * REQUEST_SECONDS):
        await publisher.publish(batch)
    return len(batch)
