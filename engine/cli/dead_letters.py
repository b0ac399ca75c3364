"""`proximity dead-letters`: lists dead letters, and puts them back on their topics.

The progress of `replay` is committed for a consumer group: an offset for each partition and, in the
commit's metadata, the further offsets of single reasons.
"""

import asyncio
import base64
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing
from typing import Annotated, Any

import msgspec
import typer
from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.structs import OffsetAndMetadata
from typer import Option

from connectors.model import CallFault
from engine.cli.command import CommandError, Json, begin_quietly, command, telling
from engine.cli.output import echo_json, print_table, say
from engine.cli.servers import open_publisher
from engine.kafka.client import REQUEST_SECONDS, KafkaCluster
from engine.kafka.dead_letters import ORIGINAL, REASONS
from engine.kafka.producer import Outgoing
from engine.kafka.topic_reader import (
    OffsetRange,
    Offsets,
    TopicReader,
    open_topic_reader,
    partitions_of,
)
from engine.kafka.topics import Topics, all_topics, detection_topics

_PREVIEW_BYTES = 48
_GROUP = "dead-letters-replay"
_ALL = ""


def _reason(text: str) -> str:
    if text not in REASONS:
        raise typer.BadParameter(f"'{text}' is not one of {', '.join(REASONS)}")
    return text


ReasonOption = Annotated[
    str | None,
    Option(metavar="REASON", parser=_reason, help="Only dead letters with this reason."),
]


@command("dead-letters list")
async def list_letters(
    limit: Annotated[int, Option(min=1, help="Show at most this many; all are counted.")] = 100,
    reason: ReasonOption = None,
    as_json: Json = False,
) -> None:
    """List dead letters with their origin and reason, the oldest first in each partition.

    With --json keys and values are shown in full.
    """
    settings = begin_quietly()
    shown: list[tuple[str, ...]] = []
    counts: Counter[str] = Counter()
    partitions = await partitions_of(settings, [Topics.of(settings.topic_prefix).dead_letters])
    async with open_topic_reader(settings, missing="skip") as reader:
        async for batch in read_letters(reader, dict.fromkeys(partitions, 0)):
            for letter in batch:
                if reason in (None, letter.reason):
                    counts[letter.reason] += 1
                    if counts.total() <= limit and as_json:
                        echo_json(letter.as_json())
                    elif counts.total() <= limit:
                        shown.append(letter.cells())
    if as_json:
        return
    if shown:
        print_table(("from", "reason", "detail", "failed at", "value"), shown)
    total = counts.total()
    by_reason = ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))
    more = f"; the first {limit:,} are shown (--limit)" if total > limit else ""
    say(f"{total:,} dead letters: {by_reason}{more}" if total else "no dead letters")


@command(
    "dead-letters replay",
    "dead-letters replay --dry-run",
    "dead-letters replay --reason connector_unreachable",
)
async def replay(
    reason: ReasonOption = None,
    limit: Annotated[int | None, Option(min=1, help="Put back at most this many.")] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Only show what would be put back.")] = False,
    from_beginning: Annotated[
        bool, Option("--from-beginning", help="Also put back those that were put back before.")
    ] = False,
) -> None:
    """Publish dead letters again to their original topics, key and value byte for byte.

    The progress is kept in Kafka as the offsets of a consumer group, so a second replay puts no
    dead letter back twice, whichever reasons are chosen. Run one replay at a time. A record that
    fails again becomes a dead letter again. Some dead letters are named and left out, and the exit
    status is 1: those of topics that are not the engine's, those without a value because of its
    size, and detections that are already counted (their notification was too large).
    """
    settings = begin_quietly()
    *sources, dead_letters = all_topics(settings)
    detections = [topic.name for topic in detection_topics(settings)]
    name = f"{settings.group_prefix}{_GROUP}"
    put_back = left_out = 0

    def summary() -> str:
        return f"{put_back:,} dead letters {'would be put back' if dry_run else 'put back'}"

    with telling(summary):
        partitions = await partitions_of(settings, [dead_letters])
        async with KafkaCluster(settings) as cluster, asyncio.timeout(REQUEST_SECONDS):
            commits = await cluster.committed(name, partitions) if partitions else {}
        progress = {tp: _progress(commits.get(tp)) for tp in partitions}
        starts = {tp: 0 if from_beginning else _begin(progress[tp], reason) for tp in partitions}
        async with (
            open_publisher(settings) as publisher,
            open_topic_reader(settings, missing="skip", group=name) as reader,
            aclosing(read_letters(reader, starts)) as batches,
        ):
            async for batch in batches:
                done = progress[batch[0].place]
                outgoing: list[Outgoing] = []
                for letter in batch:
                    if limit is not None and put_back + len(outgoing) >= limit:
                        break
                    is_new = from_beginning or letter.offset >= _begin(done, letter.reason)
                    if is_new and reason in (None, letter.reason):
                        if (obstacle := letter.obstacle(sources, detections)) is None:
                            outgoing.append(letter.original())
                        else:
                            left_out += 1
                            place = f"dead letter {letter.place.partition}/{letter.offset}"
                            say(f"{place} is not put back: {obstacle}", err=True)
                    done[reason or _ALL] = max(letter.offset + 1, done.get(reason or _ALL, 0))
                if not dry_run:  # a crash between the two repeats the batch
                    await publisher.publish(outgoing)
                    marks = msgspec.json.encode(done).decode()
                    commit = OffsetAndMetadata(_begin(done, None), marks)
                    await reader.commit({batch[0].place: commit})
                put_back += len(outgoing)
                if put_back == limit:
                    break
    say(summary())
    if left_out:
        raise CommandError(f"{left_out:,} dead letters cannot be put back")


def _progress(committed: OffsetAndMetadata | None) -> dict[str, int]:
    """The offsets before which the letters of a reason, or all (""), were put back."""
    if committed is None:
        return {}
    reasons = msgspec.json.decode(committed.metadata or "{}", type=dict[str, int])
    return reasons | {_ALL: committed.offset}


def _begin(progress: Mapping[str, int], reason: str | None) -> int:
    """Where a replay continues, of one reason or of all."""
    return max(progress.get(_ALL, 0), progress.get(reason or _ALL, 0))


class Letter:
    """A record of dead-letters; `topic`, `reason` and `origin` are of the record that failed."""

    def __init__(self, record: "ConsumerRecord[bytes, bytes]") -> None:
        self.place = TopicPartition(record.topic, record.partition)
        self.offset: int = record.offset
        self.key: bytes | None = record.key
        self.value: bytes | None = record.value
        self._headers = record.headers
        said = {name: (value or b"").decode("utf-8", "replace") for name, value in record.headers}
        self.topic = said.get("topic")
        self.origin = "/".join(said.get(name, "?") for name in ("topic", "partition", "offset"))
        self.reason, self.detail = said.get("reason", "?"), said.get("detail", "")
        self.failed_at = said.get("failed_at", "")

    def obstacle(self, sources: Collection[str], detections: Collection[str]) -> str | None:
        """Why the letter cannot be put back on its topic, or None.

        `sources` are the engine's topics, `detections` those of detections.
        """
        if self.topic not in sources:
            return f"its topic {self.topic or 'is not named'} is none of {', '.join(sources)}"
        if self.reason != CallFault.TOO_LARGE:
            return None
        if self.value is None:
            return f"its value was too large and was left out: the original is at {self.origin}"
        if self.topic in detections:
            return (
                "only the notification was too large, the detection itself is counted: shorten "
                "the campaign, and the device's next detection fires it"
            )
        return None

    def original(self) -> Outgoing:
        """The record that failed, for its own topic."""
        headers = [
            (name.removeprefix(ORIGINAL), value or b"")
            for name, value in self._headers
            if name.startswith(ORIGINAL)
        ]
        return Outgoing(self.topic or "", self.key, self.value, headers)

    def cells(self) -> tuple[str, ...]:
        """The cells of the table: of the value its first bytes."""
        value = b"(null)" if self.value is None else self.value
        shown = value[:_PREVIEW_BYTES].decode("utf-8", "backslashreplace")
        shown += "…" * (len(value) > _PREVIEW_BYTES)
        return self.origin, self.reason, self.detail, self.failed_at, shown

    def as_json(self) -> dict[str, Any]:
        """All fields for programs; bytes that are no text as base64."""
        names = ("origin", "reason", "detail", "failed_at", "offset")
        fields = {name: getattr(self, name) for name in names}
        for name, data in (("key", self.key), ("value", self.value)):
            try:
                fields[name] = None if data is None else data.decode()
            except UnicodeDecodeError:
                fields[f"{name}_base64"] = base64.b64encode(data or b"").decode()
        return fields | {"partition": self.place.partition}


async def read_letters(reader: TopicReader, starts: Offsets) -> AsyncGenerator[list[Letter], None]:
    """The letters that the partitions of `starts` have now, in lists of one partition each.

    A start that a partition does not have (it was deleted, or the topic was recreated) is its
    beginning. Raises KafkaError, and TimeoutError if no record arrives within the deadline.
    """
    ranges = await reader.ranges(starts)
    for tp, (begin, end) in ranges.items():
        ranges[tp] = OffsetRange(starts[tp] if begin <= starts[tp] <= end else begin, end)
    async for records in reader.records_until(ranges):
        yield [Letter(record) for record in records]
