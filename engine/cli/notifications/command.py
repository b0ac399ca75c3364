"""`proximity notifications tail`: shows notifications as they are published."""

import asyncio
import shutil
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from engine.cli.errors import CommandError
from engine.cli.examples import examples
from engine.cli.invocation import begin_quietly
from engine.cli.servers import first_contact, kafka_failures
from engine.process.settings import Settings

if TYPE_CHECKING:
    from engine.cli.notifications.line import Selection


def register(app: typer.Typer) -> None:
    """Add the command group."""
    group = typer.Typer(
        help="Notifications that the engine has published for push senders.", no_args_is_help=True
    )
    lines = (
        "notifications tail --from-beginning",
        "notifications tail --udid device-1 --count 1 --json",
    )
    group.command("tail", epilog=examples(*lines))(tail)
    app.add_typer(group, name="notifications")


def tail(
    context: typer.Context,
    udid: Annotated[str | None, typer.Option(help="Only notifications to this device.")] = None,
    campaign: Annotated[
        str | None, typer.Option(help="Only notifications of this campaign: id or name.")
    ] = None,
    from_beginning: Annotated[
        bool,
        typer.Option(
            "--from-beginning", help="Also show notifications that are already in the topic."
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
    from engine.cli.notifications.line import Selection

    settings = begin_quietly(context)
    shown = _Shown(Selection(udid, campaign), json, count)
    asyncio.run(_tail(settings, shown, from_beginning))


class _Shown:
    """Prints the selected notifications; `full` once it has printed `count` of them."""

    def __init__(self, selection: "Selection", json: bool, count: int | None) -> None:
        self._selection = selection
        self._json = json
        self._left = count

    @property
    def full(self) -> bool:
        return self._left == 0

    def take(self, value: bytes | None) -> None:
        from engine.cli.notifications.line import compact, one_line, read_notification

        notification = read_notification(value)
        if notification is None:
            typer.echo("a record that is not a notification is skipped", err=True)
        elif self._selection.takes(notification):
            width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
            text = compact(value or b"") if self._json else one_line(notification, width=width)
            typer.echo(text)
            self._left = None if self._left is None else self._left - 1


async def _tail(settings: Settings, shown: _Shown, from_beginning: bool) -> None:
    from engine.kafka.topic_reader import open_topic_reader, partitions_of
    from engine.kafka.topics import Topics

    topic = Topics.named(settings.topic_prefix).notifications
    with kafka_failures(settings, lambda: "nothing more is shown"):
        await first_contact(settings, _reachable(settings))
        partitions = await partitions_of(settings, [topic])
        if not partitions:
            raise CommandError(f"there is no topic {topic} yet: `proximity run` makes it")
        async with open_topic_reader(settings, missing="skip") as reader:
            ranges = await reader.ranges(partitions)
            starts = {tp: begin if from_beginning else end for tp, (begin, end) in ranges.items()}
            typer.echo(f"reading {topic}; Ctrl-C ends", err=True)
            async for records in reader.follow(starts):
                for record in records:
                    shown.take(record.value)
                    if shown.full:
                        return


async def _reachable(settings: Settings) -> None:
    from engine.kafka.topics import ensure_topics

    await ensure_topics(settings, ())
