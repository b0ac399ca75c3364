"""`proximity notifications tail`: shows notifications as they are published."""

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime
from typing import Annotated

import msgspec
import typer
from aiokafka import TopicPartition

from catalog.plain_text import for_terminal
from engine.cli.command import CommandError, begin_quietly, examples, new_app
from engine.cli.servers import kafka_failures
from engine.kafka.messages import Notification, parse
from engine.kafka.topic_reader import OffsetRange, TopicReader, open_topic_reader, partitions_of
from engine.kafka.topics import Topics
from engine.process.settings import Settings

_decode = msgspec.json.Decoder(Notification).decode


app = new_app()
group = typer.Typer(
    help="Notifications that the engine has published for push senders.", no_args_is_help=True
)
app.add_typer(group, name="notifications")


@group.command(
    "tail",
    epilog=examples(
        "notifications tail --from-beginning", "notifications tail --udid device-1 --count 1 --json"
    ),
)
def tail(
    context: typer.Context,
    udid: Annotated[str | None, typer.Option(help="Only notifications to this device.")] = None,
    campaign: Annotated[
        str | None, typer.Option(help="Only notifications of this campaign: id or name.")
    ] = None,
    from_beginning: Annotated[
        bool,
        typer.Option(
            "--from-beginning",
            help="First show notifications that are already in the topic, in order of time.",
        ),
    ] = False,
    count: Annotated[int | None, typer.Option(min=1, help="End after this many.")] = None,
    json: Annotated[
        bool,
        typer.Option("--json", help="Print each whole message as it was published, one a line."),
    ] = False,
) -> None:
    """Show each notification as it is published, until Ctrl-C.

    Prints one line each: the time, the campaign, the device, and the text that the phone shows.
    The command joins no consumer group and commits nothing.
    """
    settings = begin_quietly(context)

    def is_wanted(found: Notification) -> bool:
        names = (str(found.campaign.id), found.campaign.name.casefold())
        is_campaign = campaign is None or campaign.casefold() in names
        return is_campaign and udid in (None, found.device.udid)

    asyncio.run(_tail(settings, is_wanted, count, json, from_beginning))


async def _tail(
    settings: Settings,
    is_wanted: Callable[[Notification], bool],
    count: int | None,
    json: bool,
    from_beginning: bool,
) -> None:
    topic = Topics.named(settings.topic_prefix).notifications
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    with kafka_failures(settings, lambda: "nothing more is shown"):
        partitions = await partitions_of(settings, [topic])
        if not partitions:
            raise CommandError(f"there is no topic {topic} yet: `proximity run` makes it")
        async with open_topic_reader(settings, missing="skip") as reader:
            ranges = await reader.ranges(partitions)
            typer.echo(f"reading {topic}; Ctrl-C ends", err=True)
            async for value in _values(reader, ranges, from_beginning):
                notification = read_notification(value)
                if notification is None:
                    typer.echo("a record that is not a notification is skipped", err=True)
                elif is_wanted(notification):
                    line = compact(value or b"") if json else one_line(notification, width=width)
                    typer.echo(line)
                    count = None if count is None else count - 1
                    if count == 0:
                        return


async def _values(
    reader: TopicReader, ranges: Mapping[TopicPartition, OffsetRange], from_beginning: bool
) -> AsyncIterator[bytes | None]:
    """The records' values: those of the topic in order of time, then each as it comes."""
    ends = {tp: end for tp, (_, end) in ranges.items()}
    if from_beginning:
        begins = {tp: begin for tp, (begin, _) in ranges.items()}
        async for record in reader.in_order_of_time(begins, ends):
            yield record.value
    async for records in reader.follow(ends):
        for record in records:
            yield record.value


def read_notification(value: bytes | None) -> Notification | None:
    """The notification in a record's value; None if it is none."""
    try:
        return _decode(value or b"")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def compact(value: bytes) -> str:
    """The same JSON on one line, every field as it was published, harmless to a terminal."""
    return for_terminal(msgspec.json.format(value, indent=-1).decode())


def one_line(notification: Notification, *, width: int | None = None) -> str:
    """The time, the campaign, the device and the text on the phone; cut to `width` columns."""
    try:
        at = f"{datetime.fromtimestamp(parse(notification.triggered_at)).astimezone():%H:%M:%S}"
    except (ValueError, OverflowError):
        at = "--:--:--"
    line = (
        f"{at}  {notification.campaign.name} -> {notification.device.udid}: "
        f"{notification.title}. {notification.push} [{notification.format}]"
    )
    shown = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in line)
    if width is None or len(shown) <= width:
        return shown
    return f"{shown[: width - 1]}\N{HORIZONTAL ELLIPSIS}"
