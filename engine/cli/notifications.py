"""`proximity notifications tail`: shows notifications as they are published."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import datetime
from functools import partial
from typing import Annotated

import msgspec
from typer import Option

from engine.cli.command import CommandError, begin_quietly, command
from engine.cli.output import say
from engine.kafka.messages import Notification, parse
from engine.kafka.topic_reader import open_topic_reader, partitions_of
from engine.kafka.topics import Topics
from engine.process.settings import Settings

_decode = msgspec.json.Decoder(Notification).decode


@command(
    "notifications tail",
    "notifications tail --from-beginning",
    "notifications tail --udid device-1 --count 1 --json",
)
async def tail(
    udid: Annotated[str | None, Option(help="Only this device.")] = None,
    campaign: Annotated[str | None, Option(help="Only this campaign: id or name.")] = None,
    from_beginning: Annotated[
        bool, Option("--from-beginning", help="First show those in the topic.")
    ] = False,
    count: Annotated[int | None, Option(min=1, help="End after this many.")] = None,
    as_json: Annotated[bool, Option("--json", help="Each whole message on a line.")] = False,
) -> None:
    """Show each notification as it is published, until Ctrl-C.

    Prints one line each: the time, the campaign, the device, and the text that the phone shows.
    The command joins no consumer group and commits nothing.
    """
    on_begin = partial(say, "reading notifications; Ctrl-C ends", err=True)
    async with aclosing(published(begin_quietly(), from_beginning, on_begin)) as values:
        async for found, value, line in values:
            names = (None, str(found.campaign.id), found.campaign.name.casefold())
            if (campaign and campaign.casefold()) in names and udid in (None, found.device.udid):
                say(msgspec.json.format(value, indent=-1).decode() if as_json else line)
                count = None if count is None else count - 1
                if count == 0:
                    return


async def published(
    settings: Settings, from_beginning: bool, on_begin: Callable[[], None] = lambda: None
) -> AsyncGenerator[tuple[Notification, bytes, str], None]:
    """Notifications as they come, each with its message and a line about it; with `from_beginning`
    first the topic's.

    Never ends; `on_begin` is called when none will be missed. Raises CommandError if there is no
    topic, and KafkaError or TimeoutError.
    """
    topic = Topics.of(settings.topic_prefix).notifications
    partitions = await partitions_of(settings, [topic])
    if not partitions:
        raise CommandError(f"there is no topic {topic} yet: `proximity run` makes it")
    async with open_topic_reader(settings, missing="skip") as reader:
        ranges = await reader.ranges(partitions)
        on_begin()
        begins = {tp: begin if from_beginning else end for tp, (begin, end) in ranges.items()}
        async for records in reader.follow(begins):
            for record in records:
                value = record.value or b""
                try:
                    found = _decode(value)
                    line = _line(found)
                except (ValueError, RecursionError):
                    say("a record that is not a notification is skipped", err=True)
                else:
                    yield found, value, line


def _line(notification: Notification) -> str:
    """The time, the campaign, the device and the text on the phone. Raises ValueError."""
    at = datetime.fromtimestamp(parse(notification.triggered_at)).astimezone()
    return (
        f"{at:%H:%M:%S}  {notification.campaign.name} -> {notification.device.udid}: "
        f"{notification.title}. {notification.push} [{notification.format}]"
    )
