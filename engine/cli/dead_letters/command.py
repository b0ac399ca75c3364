"""`proximity dead-letters`: lists dead letters, and puts them back."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from catalog.plain_text import for_terminal
from engine.cli.errors import CommandError, CommandInterruptedError
from engine.cli.examples import examples
from engine.cli.invocation import begin_quietly
from engine.cli.servers import kafka_failures
from engine.cli.tables import echo_json, print_wrapped_table
from engine.process.settings import Settings

if TYPE_CHECKING:
    from engine.cli.dead_letters.letter import Letter
    from engine.cli.dead_letters.replay import PutBackRequest, ReplayCounts

_PREVIEW_BYTES = 48
_GROUP = "dead-letters-replay"
_WIDTH_OF_A_FILE = 200

T = TypeVar("T")

ReasonOption = Annotated[str | None, typer.Option(help="Only dead letters with this reason.")]


def register(app: typer.Typer) -> None:
    """Add the command group."""
    group = typer.Typer(help="Records that could not be processed.", no_args_is_help=True)
    group.command("list")(list_letters)
    lines = ("dead-letters replay --dry-run", "dead-letters replay --reason connector_unreachable")
    group.command("replay", epilog=examples(*lines))(replay)
    app.add_typer(group, name="dead-letters")


def list_letters(
    context: typer.Context,
    limit: Annotated[
        int, typer.Option(min=1, help="Show at most this many; all are counted.")
    ] = 100,
    reason: ReasonOption = None,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line, keys and values in full.")
    ] = False,
) -> None:
    """List dead letters with their origin and reason, the oldest first in each partition."""
    _check(reason)
    settings = begin_quietly(context)
    work = _read(settings, reason, limit, _print_json if json else None)
    counts, letters = _finish(settings, work, lambda: "nothing done")
    if json:
        return
    if letters:
        header = ("from", "reason", "detail", "failed at", "value")
        print_wrapped_table(header, map(_cells, letters), width_of_file=_WIDTH_OF_A_FILE)
    total = sum(counts.values())
    by_reason = ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))
    more = f"; the first {limit:,} are shown (--limit)" if total > limit else ""
    line = f"{total:,} dead letters: {by_reason}{more}" if total else "no dead letters"
    typer.echo(for_terminal(line))


def replay(
    context: typer.Context,
    reason: ReasonOption = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Put back at most this many.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be put back.")
    ] = False,
    from_beginning: Annotated[
        bool,
        typer.Option("--from-beginning", help="Also put back those that were put back before."),
    ] = False,
) -> None:
    """Publish dead letters again to their original topics: key, value and headers byte for byte.

    The progress is kept in Kafka as the offsets of a consumer group, so a second replay puts no
    dead letter back twice, whichever reasons are chosen. Run one replay at a time. A record that
    fails again becomes a dead letter again. Some dead letters are named and left out, and the exit
    status is 1: those of topics that are not the engine's, those without a value because of its
    size, and detections that are already counted (their notification was too large).
    """
    from engine.cli.dead_letters.replay import PutBackRequest, ReplayCounts

    _check(reason)
    settings = begin_quietly(context)
    request = PutBackRequest(reason, limit, from_beginning)
    counts = ReplayCounts()
    put = "would be put back" if dry_run else "put back"

    def summary() -> str:
        return f"{counts.put_back:,} dead letters {put}"

    _finish(settings, _replay(settings, request, counts, dry_run=dry_run), summary)
    typer.echo(summary())
    if counts.left_out:
        raise CommandError(f"{counts.left_out:,} dead letters cannot be put back")


def _check(reason: str | None) -> None:
    from engine.kafka.dead_letters import DeadLetterReason

    known = [each.value for each in DeadLetterReason]
    if reason is not None and reason not in known:
        raise typer.BadParameter(f"accepted: {', '.join(known)}", param_hint="reason")


def _finish(settings: Settings, work: Coroutine[Any, Any, T], done: Callable[[], str]) -> T:
    from engine.kafka.errors import MessageTooLargeError

    async def run() -> T:
        try:
            with kafka_failures(settings, done):
                return await work
        except asyncio.CancelledError:
            raise CommandInterruptedError(f"interrupted; {done()}") from None
        except MessageTooLargeError as error:
            raise CommandError(f"the broker refuses {error}; {done()}") from None

    return asyncio.run(run())


async def _read(
    settings: Settings, reason: str | None, limit: int, show: "Callable[[Letter], None] | None"
) -> "tuple[Counter[str], list[Letter]]":
    """The counts by reason, and the first letters, unless `show` took them."""
    from engine.cli.dead_letters.letter import read_letters
    from engine.kafka.topic_reader import open_topic_reader, partitions_of
    from engine.kafka.topics import Topics

    counts: Counter[str] = Counter()
    first: list[Letter] = []
    take = show or first.append
    topic = Topics.named(settings.topic_prefix).dead_letters
    partitions = await partitions_of(settings, [topic])
    async with open_topic_reader(settings, missing="skip") as reader:
        async for letters in read_letters(reader, dict.fromkeys(partitions, 0)):
            for letter in letters:
                if reason in (None, letter.reason):
                    if counts.total() < limit:
                        take(letter)
                    counts[letter.reason] += 1
    return counts, first


async def _replay(
    settings: Settings, request: "PutBackRequest", counts: "ReplayCounts", *, dry_run: bool
) -> None:
    from engine.cli.dead_letters.replay import DeadLetterReplay, replayed_by
    from engine.kafka.publisher import Publisher
    from engine.kafka.topic_reader import open_topic_reader, partitions_of
    from engine.kafka.topics import Topics

    topics = Topics.of(settings)
    group = f"{settings.group_prefix}{_GROUP}"
    partitions = await partitions_of(settings, [topics.dead_letters])
    publisher = None if dry_run else Publisher.from_settings(settings)
    try:
        if publisher is not None:
            await publisher.start()
        async with open_topic_reader(settings, missing="skip", group=group) as reader:
            work = DeadLetterReplay(
                reader=reader,
                publisher=publisher,
                topics=topics,
                replayed=await replayed_by(settings, group, partitions),
                request=request,
                counts=counts,
                on_left_out=_print_left_out,
            )
            await work.run()
    finally:
        if publisher is not None:
            await publisher.close()


def _print_left_out(letter: "Letter", obstacle: str) -> None:
    place = f"dead letter {letter.place.partition}/{letter.offset}"
    typer.echo(for_terminal(f"{place} is not put back: {obstacle}"), err=True)


def _print_json(letter: "Letter") -> None:
    echo_json(letter.as_json())


def _cells(letter: "Letter") -> tuple[str, ...]:
    value = letter.shown_value(_PREVIEW_BYTES)
    return letter.origin, letter.reason, letter.detail, letter.failed_at, value
