"""`proximity publish`: publishes detections from a file, as an ingestion pipeline would."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import typer
from typer import Argument, Option

from engine.cli.command import CommandError, begin_quietly, command, new_app, telling
from engine.cli.detection_file import (
    DetectionFile,
    FormatOption,
    form_of,
)
from engine.cli.output import say, shown_progress
from engine.cli.servers import open_publisher
from engine.kafka.client import REQUEST_SECONDS
from engine.kafka.producer import Outgoing, Publisher
from engine.kafka.topics import detection_topics, ensure_topics
from engine.process.settings import DetectionTopic, Settings

_BATCH_RECORDS = 1000
_BATCH_BYTES = 4 * 1024 * 1024
_TICK = 0.02  # seconds: items that become due within it form a batch
_MOST_FAULTS = 20

app = new_app()


@command(
    app,
    "publish",
    "publish docs/examples/detections.jsonl --now",
    "publish recorded.csv --speed 10",
    "publish - --rate 100 < detections.jsonl",
)
def publish(
    context: typer.Context,
    file: Annotated[Path, Argument(help="JSON Lines, a JSON array, or CSV; - is standard input.")],
    form: FormatOption = None,
    rate: Annotated[float | None, Option(min=0.001, help="Detections a second.")] = None,
    speed: Annotated[
        float | None, Option(min=0.001, help="Keep the recorded pace, times this.")
    ] = None,
    now: Annotated[bool, Option("--now", help="Set detected_at to the present.")] = False,
    as_is: Annotated[bool, Option("--as-is", help="Publish every line unread.")] = False,
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
    form = form or form_of(file)
    if as_is and (speed is not None or form == "csv"):
        raise typer.BadParameter(
            "publishes JSON Lines unread: not with --speed or CSV", param_hint="as-is"
        )
    settings = begin_quietly(context)
    source, faults = DetectionFile(file, form), list[str]()

    def blocks() -> Iterator[list[Item]]:
        return checked_items(source, faults, as_is=as_is, timed=speed is not None)

    if dry_run or not skip_invalid:
        done = "nothing was published"
        with telling(lambda: done):
            count = sum(map(len, blocks()))
        done = f"{count:,} detections are valid; {done}" if dry_run else done
        if faults:
            show = faults if len(faults) > 1 else ()
            _print_faults(show)
            what = f"{source.name} has {len(faults):,} faults" if show else faults[0]
            raise CommandError(f"{what}; {done}")
    if dry_run:
        say(done)
        raise typer.Exit
    topic = detection_topics(settings)[0]
    if topic != DetectionTopic(topic.name):
        raise CommandError(f"DETECTION_TOPICS says {topic}: publish writes the format own only")
    sender = Sender(topic.name, rate, speed, stamp=now)
    return _publish(settings, source, blocks(), faults, sender)


async def _publish(
    settings: Settings,
    source: DetectionFile,
    blocks: Iterator[list["Item"]],
    faults: list[str],
    sender: "Sender",
) -> None:
    begin = time.monotonic()
    with (
        source,
        shown_progress("published", "detections") as progress,
        telling(lambda: f"{sender.sent:,} had been published"),
    ):
        progress(total=source.size)
        sender.on_sent = lambda sent: progress(count=sent, completed=source.read)
        await ensure_topics(settings, (sender.topic,))
        async with open_publisher(settings) as publisher:
            for block in blocks:
                await sender.send(publisher, block)
    _print_faults(faults)
    seconds = time.monotonic() - begin
    skipped = f", skipped {len(faults):,}" if faults else ""
    done = f"published {sender.sent:,} detections to {sender.topic} in {seconds:.1f} s"
    say(f"{done} ({sender.sent / seconds:,.0f}/s){skipped}")


def _print_faults(faults: Sequence[str]) -> None:
    for fault in faults[:_MOST_FAULTS]:
        say(fault, err=True)


class Item(NamedTuple):
    """A message to publish. `key` is the device's udid, `recorded` the time of the detection."""

    key: bytes | None
    value: bytes
    recorded: float | None = None


def checked_items(
    source: DetectionFile, faults: list[str], *, as_is: bool = False, timed: bool = False
) -> Iterator[list[Item]]:
    """The valid detections of a file; its `faults` are noted, each with its place.

    `as_is` takes every line; `timed` needs the time of every detection. Raises InputFaultError.
    """
    for entries in source.blocks():
        items = []
        for entry in entries:
            if as_is:
                items.append(Item(_key_of(entry.value), entry.value))
                continue
            try:
                found = entry.decode(path_loss_exponent=2.0, timed=timed)
            except ValueError as error:
                faults.append(f"{source.name}:{entry.line}: {error}")
            else:
                udid = found.message.device.udid.encode()
                items.append(Item(udid, entry.value, found.detected_at))
        yield items


def _key_of(line: bytes) -> bytes | None:
    """The udid of a line that may be anything."""
    try:
        return str(msgspec.json.decode(line)["device"]["udid"]).encode()
    except (ValueError, TypeError, LookupError, RecursionError):
        return None


def stamped(value: bytes, epoch: float) -> bytes:
    """The JSON object with `detected_at` set to `epoch`, in milliseconds; no object stays as it is.

    Every other field stays as it is, byte for byte.
    """
    try:
        fields = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
    except (ValueError, RecursionError):
        return value
    fields["detected_at"] = msgspec.Raw(b"%d" % round(epoch * 1000))
    return msgspec.json.encode(fields)


@dataclass
class Sender:
    """Publishes items in order and in batches, each at a `rate` a second, or at the recorded pace
    times `speed`, else at once.

    `sent` counts the items that the brokers have acknowledged.
    """

    topic: str
    rate: float | None = None
    speed: float | None = None
    stamp: bool = False
    on_sent: Callable[[int], None] = lambda _: None
    clock: Callable[[], float] = time.monotonic
    sent: int = 0
    _begin: float | None = None
    _first: float = 0.0
    _count: int = 0

    def wait_before(self, item: Item) -> float:
        """The seconds to wait before `item`, the next one, is sent; 0 if it is due."""
        if self._begin is None:
            self._begin, self._first = self.clock(), item.recorded or 0.0
        due = self._begin
        if self.rate is not None:
            due += self._count / self.rate
        elif self.speed is not None:
            due += ((item.recorded or 0.0) - self._first) / self.speed
        self._count += 1
        return max(0.0, due - self.clock())

    async def send(self, publisher: Publisher, items: list[Item]) -> None:
        """Publish all items; returns when all are acknowledged.

        Raises KafkaError, MessageTooLargeError, and TimeoutError if a batch takes too long.
        """
        batch, size = list[Item](), 0
        for item in items:
            wait = self.wait_before(item)
            if wait > 0 or len(batch) >= _BATCH_RECORDS or size >= _BATCH_BYTES:
                await self._flush(publisher, batch)
                batch, size = [], 0
            if wait > 0:
                await asyncio.sleep(max(wait, _TICK))
            batch.append(item)
            size += len(item.value)
        await self._flush(publisher, batch)

    async def _flush(self, publisher: Publisher, batch: list[Item]) -> None:
        now = time.time()
        messages = [
            Outgoing(self.topic, key, stamped(value, now) if self.stamp else value, [])
            for key, value, _ in batch
        ]
        async with asyncio.timeout(3 * REQUEST_SECONDS):
            await publisher.publish(messages)
        self.sent += len(batch)
        self.on_sent(self.sent)
