"""`proximity notifications tail`: shows notifications as they are published."""

import shutil
import sys
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated

import msgspec
import typer
from typer import Option

from catalog.plain_text import for_terminal
from engine.cli.command import CommandError, begin_quietly, command, new_app, new_group
from engine.cli.output import say
from engine.kafka.messages import Notification, parse
from engine.kafka.topic_reader import Offsets, TopicReader, open_topic_reader, partitions_of
from engine.kafka.topics import Topics

_decode = msgspec.json.Decoder(Notification).decode

app = new_app()
group = new_group(
    app, "notifications", "Notifications that the engine has published for push senders."
)


@command(
    group,
    "tail",
    "notifications tail --from-beginning",
    "notifications tail --udid device-1 --count 1 --json",
)
async def tail(
    context: typer.Context,
    udid: Annotated[str | None, Option(help="Only this device.")] = None,
    campaign: Annotated[str | None, Option(help="Only this campaign: id or name.")] = None,
    from_beginning: Annotated[
        bool, Option("--from-beginning", help="First show those in the topic, in order of time.")
    ] = False,
    count: Annotated[int | None, Option(min=1, help="End after this many.")] = None,
    as_json: Annotated[bool, Option("--json", help="Each whole message on a line.")] = False,
) -> None:
    """Show each notification as it is published, until Ctrl-C.

    Prints one line each: the time, the campaign, the device, and the text that the phone shows.
    The command joins no consumer group and commits nothing.
    """
    settings = begin_quietly(context)
    topic = Topics.named(settings.topic_prefix).notifications
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    partitions = await partitions_of(settings, [topic])
    if not partitions:
        raise CommandError(f"there is no topic {topic} yet: `proximity run` makes it")
    async with open_topic_reader(settings, missing="skip") as reader:
        ranges = await reader.ranges(partitions)
        say(f"reading {topic}; Ctrl-C ends", err=True)
        begins = {tp: each.begin if from_beginning else each.end for tp, each in ranges.items()}
        ends = {tp: each.end for tp, each in ranges.items()}
        async for value in _values(reader, begins, ends):
            found = read_notification(value)
            if found is None:
                say("a record that is not a notification is skipped", err=True)
                continue
            names = (None, str(found.campaign.id), found.campaign.name.casefold())
            if (campaign and campaign.casefold()) in names and udid in (None, found.device.udid):
                say(compact(value) if as_json else one_line(found, width=width))
                count = None if count is None else count - 1
                if count == 0:
                    return


async def _values(reader: TopicReader, begins: Offsets, ends: Offsets) -> AsyncIterator[bytes]:
    """The records' values: those before `ends` in order of time, then each as it comes."""
    async for record in reader.in_order_of_time(begins, ends):
        yield record.value or b""
    async for records in reader.follow(ends):
        for record in records:
            yield record.value or b""


def read_notification(value: bytes) -> Notification | None:
    """The notification in a record's value; None if it is none."""
    try:
        return _decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def compact(value: bytes) -> str:
    """The same JSON on one line, every field as it was published."""
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
