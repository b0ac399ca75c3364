"""`proximity dead-letters`: lists dead letters, and puts them back on their topics.

The progress of `replay` is committed for a consumer group: an offset for each partition and, in the
commit's metadata, the further offsets of single reasons.
"""

import asyncio
import base64
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar

import msgspec
import typer
from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata

from catalog.plain_text import for_terminal
from engine.cli.command import (
    CommandError,
    CommandInterruptedError,
    begin_quietly,
    examples,
    new_app,
)
from engine.cli.output import echo_json, print_table
from engine.cli.servers import kafka_failures
from engine.kafka.client import REQUEST_SECONDS, KafkaCluster
from engine.kafka.dead_letters import ORIGINAL, DeadLetterReason
from engine.kafka.producer import MessageTooLargeError, Outgoing, Publisher
from engine.kafka.topic_reader import (
    Offsets,
    TopicReader,
    open_topic_reader,
    partitions_of,
)
from engine.kafka.topics import Topics
from engine.process.failures import Backoff
from engine.process.settings import Settings

_PREVIEW_BYTES = 48
_GROUP = "dead-letters-replay"
_UNKNOWN = "?"

T = TypeVar("T")

ReasonOption = Annotated[str | None, typer.Option(help="Only dead letters with this reason.")]


app = new_app()
group = typer.Typer(help="Records that could not be processed.", no_args_is_help=True)
app.add_typer(group, name="dead-letters")


@group.command("list")
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
    letters: list[Letter] = []
    take = (lambda letter: echo_json(letter.as_json())) if json else letters.append
    counts = _finish(settings, _count(settings, reason, limit, take), lambda: "nothing done")
    if json:
        return
    if letters:
        print_table(
            ("from", "reason", "detail", "failed at", "value"), [each.cells() for each in letters]
        )
    total = counts.total()
    by_reason = ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))
    more = f"; the first {limit:,} are shown (--limit)" if total > limit else ""
    line = f"{total:,} dead letters: {by_reason}{more}" if total else "no dead letters"
    typer.echo(for_terminal(line))


@group.command(
    "replay",
    epilog=examples(
        "dead-letters replay --dry-run", "dead-letters replay --reason connector_unreachable"
    ),
)
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
    _check(reason)
    settings = begin_quietly(context)
    replaying = DeadLetterReplay(
        topics=Topics.of(settings), reason=reason, limit=limit, from_beginning=from_beginning
    )
    put = "would be put back" if dry_run else "put back"

    def summary() -> str:
        return f"{replaying.put_back:,} dead letters {put}"

    _finish(settings, _replay(settings, replaying, dry_run=dry_run), summary)
    typer.echo(summary())
    if replaying.left_out:
        raise CommandError(f"{replaying.left_out:,} dead letters cannot be put back")


def _check(reason: str | None) -> None:
    known = [each.value for each in DeadLetterReason]
    if reason is not None and reason not in known:
        raise typer.BadParameter(f"accepted: {', '.join(known)}", param_hint="reason")


def _finish(settings: Settings, work: Coroutine[Any, Any, T], done: Callable[[], str]) -> T:
    async def run() -> T:
        try:
            with kafka_failures(settings, done):
                return await work
        except asyncio.CancelledError:
            raise CommandInterruptedError(f"interrupted; {done()}") from None
        except MessageTooLargeError as error:
            raise CommandError(f"the broker refuses {error}; {done()}") from None

    return asyncio.run(run())


class Letter(NamedTuple):
    """A record of dead-letters.

    `place` and `offset` are its own; `origin` is the topic/partition/offset of the original, as its
    headers say. `topic` is None when no header names one. `headers` are the original's.
    """

    place: TopicPartition
    offset: int
    topic: str | None
    origin: str
    reason: str
    detail: str
    failed_at: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]

    def obstacle(self, topics: Topics) -> str | None:
        """Why the letter cannot be put back on its topic, or None."""
        sources = [name for name in topics.all() if name != topics.dead_letters]
        if self.topic not in sources:
            return f"its topic {self.topic or 'is not named'} is none of {', '.join(sources)}"
        if self.reason != DeadLetterReason.TOO_LARGE:
            return None
        if self.value is None:
            return f"its value was too large and was left out: the original is at {self.origin}"
        if self.topic in topics.all_detections:
            return (
                "only the notification was too large, the detection itself is counted: shorten "
                "the campaign, and the device's next detection fires it"
            )
        return None

    def shown_value(self) -> str:
        """The first bytes of the value for a person, on one line."""
        if self.value is None:
            return "(null)"
        text = self.value[:_PREVIEW_BYTES].decode("utf-8", "backslashreplace")
        printable = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
        return printable + "…" * (len(self.value) > _PREVIEW_BYTES)

    def cells(self) -> tuple[str, ...]:
        """The cells of the table."""
        return self.origin, self.reason, self.detail, self.failed_at, self.shown_value()

    def as_json(self) -> dict[str, Any]:
        """All fields for programs; bytes that are no text as base64."""
        return {
            "origin": self.origin,
            "reason": self.reason,
            "detail": self.detail,
            "failed_at": self.failed_at,
            **_bytes_field("key", self.key),
            **_bytes_field("value", self.value),
            "partition": self.place.partition,
            "offset": self.offset,
        }


def _bytes_field(name: str, data: bytes | None) -> dict[str, str | None]:
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data or b"").decode()}


def read_letter(record: ConsumerRecord[bytes, bytes]) -> Letter:
    """The letter in a record of dead-letters."""
    headers = {name: (value or b"").decode("utf-8", "replace") for name, value in record.headers}
    origin = (headers.get(name, _UNKNOWN) for name in ("topic", "partition", "offset"))
    return Letter(
        place=TopicPartition(record.topic, record.partition),
        offset=record.offset,
        topic=headers.get("topic"),
        origin="/".join(origin),
        reason=headers.get("reason", _UNKNOWN),
        detail=headers.get("detail", ""),
        failed_at=headers.get("failed_at", ""),
        key=record.key,
        value=record.value,
        headers=[
            (name.removeprefix(ORIGINAL), value or b"")
            for name, value in record.headers
            if name.startswith(ORIGINAL)
        ],
    )


async def read_letters(reader: TopicReader, starts: Offsets) -> AsyncGenerator[list[Letter], None]:
    """The letters that the partitions of `starts` have now, in lists of one partition each.

    A start that a partition does not have (it was deleted, or the topic was recreated) is its
    beginning. Raises KafkaError, and TimeoutError if no record arrives within the deadline.
    """
    ranges = await reader.ranges(starts)
    begins = {
        tp: starts[tp] if begin <= starts[tp] <= end else begin
        for tp, (begin, end) in ranges.items()
    }
    ends = {tp: end for tp, (_, end) in ranges.items()}
    async for records in reader.records_until(begins, ends):
        yield [read_letter(record) for record in records]


async def _count(
    settings: Settings, reason: str | None, limit: int, take: Callable[[Letter], Any]
) -> Counter[str]:
    """The counts by reason; `take` gets the first `limit` letters."""
    counts: Counter[str] = Counter()
    topic = Topics.named(settings.topic_prefix).dead_letters
    partitions = await partitions_of(settings, [topic])
    async with open_topic_reader(settings, missing="skip") as reader:
        async for letters in read_letters(reader, dict.fromkeys(partitions, 0)):
            for letter in letters:
                if reason in (None, letter.reason):
                    if counts.total() < limit:
                        take(letter)
                    counts[letter.reason] += 1
    return counts


# The progress in one partition: the letters of a reason below its offset are replayed, and all
# letters below that of _ALL. So a replay of one reason leaves those of the others open.
Progress: TypeAlias = dict[str, int]
_ALL = ""


def read_progress(committed: OffsetAndMetadata | None) -> Progress:
    """The progress in a commit; None is no commit yet."""
    if committed is None:
        return {_ALL: 0}
    by_reason = msgspec.json.decode(committed.metadata or "{}", type=Progress)
    return by_reason | {_ALL: committed.offset}


def commit_of(progress: Progress) -> OffsetAndMetadata:
    """The offset and metadata for the group's commit."""
    everything = progress[_ALL]
    ahead = {reason: offset for reason, offset in progress.items() if offset > everything}
    return OffsetAndMetadata(everything, msgspec.json.encode(ahead).decode() if ahead else "")


@dataclass(kw_only=True)
class DeadLetterReplay:
    """Puts back letters: of one reason, at most `limit`, or also those that were put back before.

    Each batch is published and then committed: a crash between the two repeats the batch.
    """

    topics: Topics
    reason: str | None
    limit: int | None
    from_beginning: bool
    put_back: int = 0
    left_out: int = 0

    async def run(
        self,
        reader: TopicReader,
        publisher: Publisher | None,
        progress: dict[TopicPartition, Progress],
    ) -> None:
        """Replay up to the present end of the topic, or to the limit.

        Without a publisher nothing is published or committed. Raises KafkaError, TimeoutError or
        MessageTooLargeError.
        """
        starts = {
            tp: 0 if self.from_beginning else max(each[_ALL], each.get(self.reason or _ALL, 0))
            for tp, each in progress.items()
        }
        async with aclosing(read_letters(reader, starts)) as batches:
            async for letters in batches:
                outgoing = self._take(letters, progress)
                if publisher is not None:
                    await publisher.publish(outgoing)
                    await reader.commit({tp: commit_of(each) for tp, each in progress.items()})
                self.put_back += len(outgoing)
                if self._is_enough(self.put_back):
                    return

    def _take(
        self, letters: Iterable[Letter], progress: dict[TopicPartition, Progress]
    ) -> list[Outgoing]:
        """The messages for one partition's letters, which count as replayed from now on."""
        outgoing: list[Outgoing] = []
        key = self.reason or _ALL
        for letter in letters:
            if self._is_enough(self.put_back + len(outgoing)):
                break
            done = progress[letter.place]
            is_new = letter.offset >= max(done[_ALL], done.get(letter.reason, 0))
            if (is_new or self.from_beginning) and self.reason in (None, letter.reason):
                outgoing += self._original(letter)
            done[key] = max(letter.offset + 1, done.get(key, 0))
        return outgoing

    def _is_enough(self, count: int) -> bool:
        return self.limit is not None and count >= self.limit

    def _original(self, letter: Letter) -> list[Outgoing]:
        obstacle = letter.obstacle(self.topics)
        if obstacle is None and letter.topic is not None:
            return [Outgoing(letter.topic, letter.key, letter.value, letter.headers)]
        self.left_out += 1
        place = f"dead letter {letter.place.partition}/{letter.offset}"
        typer.echo(for_terminal(f"{place} is not put back: {obstacle}"), err=True)
        return []


async def _replay(settings: Settings, replaying: DeadLetterReplay, *, dry_run: bool) -> None:
    group = f"{settings.group_prefix}{_GROUP}"
    partitions = await partitions_of(settings, [Topics.of(settings).dead_letters])
    publisher = None if dry_run else Publisher(settings)
    try:
        if publisher is not None:
            await publisher.start()
        async with open_topic_reader(settings, missing="skip", group=group) as reader:
            await replaying.run(reader, publisher, await _replayed_by(settings, group, partitions))
    finally:
        if publisher is not None:
            await publisher.close()


async def _replayed_by(
    settings: Settings, group: str, partitions: list[TopicPartition]
) -> dict[TopicPartition, Progress]:
    """The offsets that `group` has committed."""
    if not partitions:
        return {}
    backoff = Backoff()
    async with KafkaCluster(settings) as cluster, asyncio.timeout(REQUEST_SECONDS):
        while True:
            try:
                found = await cluster.committed(group, partitions)
            except KafkaError as error:
                # A new cluster answers at first that the group has no coordinator.
                if not error.retriable:
                    raise
            else:
                return {tp: read_progress(found.get(tp)) for tp in partitions}
            await backoff.pause()
