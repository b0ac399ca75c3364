"""`proximity publish`: publishes detections from a file, as an ingestion pipeline would."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import typer
from typer import Argument, Option

from engine.cli.command import CommandError, begin_quietly, command, telling
from engine.cli.detection_file import DetectionFile, FormatOption, form_of
from engine.cli.output import refused_file, say, shown_progress
from engine.cli.servers import open_publisher
from engine.kafka.client import REQUEST_SECONDS
from engine.kafka.producer import Outgoing, Publisher
from engine.kafka.topics import detection_topics, ensure_topics
from engine.process.settings import DetectionTopic, Settings

_BATCH_RECORDS = 1000
_BATCH_BYTES = 4 * 1024 * 1024
_TICK = 0.02  # seconds: items that become due within it form a batch


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
    source, faults = DetectionFile(file, form or form_of(file)), list[str]()

    def items() -> Iterator[Item]:
        return checked_items(source, faults, timed=speed is not None)

    if dry_run or not skip_invalid:
        done = "nothing was published"
        with telling(lambda: done):
            count = sum(1 for _ in items())
        done = f"{count:,} detections are valid; {done}" if dry_run else done
        if faults:
            raise refused_file(source.name, faults, done)
    if dry_run:
        say(done)
        raise typer.Exit
    topic = detection_topics(settings)[0]
    if topic != DetectionTopic(topic.name):
        raise CommandError(f"DETECTION_TOPICS says {topic}: publish writes the format own only")
    sending = partial(send, topic=topic.name, items=items(), rate=rate, speed=speed, stamp=now)
    return _publish(settings, topic.name, source, faults, sending)


async def _publish(
    settings: Settings,
    topic: str,
    source: DetectionFile,
    faults: list[str],
    sending: Callable[[Publisher], AsyncIterator[int]],
) -> None:
    begin, sent = time.monotonic(), 0
    with (
        source,
        shown_progress("published", "detections") as progress,
        telling(lambda: f"{sent:,} had been published"),
    ):
        progress(total=source.size)
        await ensure_topics(settings, (topic,))
        async with open_publisher(settings) as publisher:
            async for sent in sending(publisher):
                progress(count=sent, completed=source.read)
    for fault in faults:
        say(fault, err=True)
    seconds = time.monotonic() - begin
    skipped = f", skipped {len(faults):,}" if faults else ""
    done = f"published {sent:,} detections to {topic} in {seconds:.1f} s"
    say(f"{done} ({sent / seconds:,.0f}/s){skipped}")


class Item(NamedTuple):
    """A message to publish. `key` is the device's udid, `recorded` the time of the detection."""

    key: bytes
    value: bytes
    recorded: float


def checked_items(
    source: DetectionFile, faults: list[str], *, timed: bool = False
) -> Iterator[Item]:
    """The valid detections of a file; its `faults` are noted, each with its place.

    `timed` needs the time of every detection. Raises CommandError.
    """
    for entry in source.entries():
        try:
            found = entry.decode(path_loss_exponent=2.0, timed=timed)
        except ValueError as error:
            faults.append(f"{source.name}:{entry.offset}: {error}")
        else:
            yield Item(found.message.device.udid.encode(), entry.value, found.detected_at)


def stamped(value: bytes, epoch: float) -> bytes:
    """The JSON object with `detected_at` set to `epoch`, in milliseconds.

    Every other field stays as it is, byte for byte.
    """
    fields = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
    fields["detected_at"] = msgspec.Raw(b"%d" % round(epoch * 1000))
    return msgspec.json.encode(fields)


def due_seconds(number: int, recorded: float, rate: float | None, speed: float | None) -> float:
    """When an item is due after the first one: at a `rate` a second, or at the recorded pace times
    `speed`, else at once. `recorded` are its seconds after the first one in the file."""
    if rate is not None:
        return number / rate
    return 0.0 if speed is None else recorded / speed


async def send(
    publisher: Publisher,
    *,
    topic: str,
    items: Iterable[Item],
    rate: float | None = None,
    speed: float | None = None,
    stamp: bool = False,
) -> AsyncIterator[int]:
    """Publish the items in order and in batches, each when it is due.

    With `stamp` detected_at is the present. Gives how many items the brokers have acknowledged.
    Raises KafkaError, MessageTooLargeError, and TimeoutError if a batch takes too long.
    """
    batch, size, sent = list[Outgoing](), 0, 0
    begin = first = 0.0
    for number, item in enumerate(items):
        if not number:
            begin, first = time.monotonic(), item.recorded
        due = begin + due_seconds(number, item.recorded - first, rate, speed)
        wait = due - time.monotonic()
        if wait > 0 or len(batch) >= _BATCH_RECORDS or size >= _BATCH_BYTES:
            sent += await _flush(publisher, batch)
            yield sent
            batch, size = [], 0
        if wait > 0:
            await asyncio.sleep(max(wait, _TICK))
        value = stamped(item.value, time.time()) if stamp else item.value
        batch.append(Outgoing(topic, item.key, value, []))
        size += len(value)
    yield sent + await _flush(publisher, batch)


async def _flush(publisher: Publisher, batch: Sequence[Outgoing]) -> int:
    async with asyncio.timeout(3 * REQUEST_SECONDS):
        await publisher.publish(batch)
    return len(batch)
